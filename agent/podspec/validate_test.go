// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// processSupport is as the Support of agent/process.
var processSupport = Support{Name: "process", NeedsCommand: true, Honored: []string{"spec.hostNetwork", "spec.containers.volumeMounts.readOnly"}}

func errorTexts(t *testing.T, manifest string, support Support) (warnings, errs []string) {
	t.Helper()
	pod := parse(t, manifest)
	Default(pod)
	before := pod.DeepCopy()
	warnings, list := Validate(pod, support)
	require.Equal(t, before, pod, "the pod stays as it is")
	for _, err := range list {
		errs = append(errs, err.Error())
	}
	return warnings, errs
}

// In the manifests "..." stands for the rest of a valid container.
const container = "name: main, command: [serve]"

func TestValidate(t *testing.T) {
	tests := []struct {
		name     string
		metadata string
		spec     string
		want     []string
	}{
		{name: "minimal", spec: `containers: [{...}]`},
		{name: "all honored fields", metadata: "name: web, namespace: shop, labels: {app: web}", spec: `
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  activeDeadlineSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
  - name: setup
    command: [make]
    restartPolicy: OnFailure
    restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [1]}}]
  - name: sidecar
    command: [proxy]
    restartPolicy: Always
    ports: [{name: admin, containerPort: 9000}]
    startupProbe: {httpGet: {port: admin, host: 127.0.0.1, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}, initialDelaySeconds: 1}
    lifecycle: {preStop: {exec: {command: [drain]}}}
  containers:
  - name: main
    command: [serve]
    args: [a]
    workingDir: /srv
    env:
    - {name: A, value: a}
    - {name: "b.c d", valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /data/b}]
    livenessProbe: {tcpSocket: {port: 65535}, terminationGracePeriodSeconds: 1, failureThreshold: 1}
    startupProbe: {exec: {command: [test]}}
    lifecycle: {preStop: {sleep: {seconds: 0}}, stopSignal: SIGTERM}
`},
		{name: "metadata", metadata: "name: A/b, namespace: a.b, uid: ../a, labels: {a b: c}", spec: "containers: [{...}]", want: []string{
			`metadata.name: Invalid value: "A/b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`metadata.namespace: Invalid value: "a.b": must not contain dots`,
			`metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`metadata.uid: Invalid value: "../a": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		}},
		{name: "no name", metadata: "labels: {}", spec: "containers: [{...}]", want: []string{
			"metadata.name: Required value: name or generateName is required",
		}},
		{name: "no container", spec: "initContainers: [{...}]", want: []string{
			"spec.containers: Required value: must have at least one container",
		}},
		{name: "names of containers", spec: `{initContainers: [{...}, {command: [a]}], containers: [{...}, {name: Main, command: [a]}, {...}]}`, want: []string{
			`spec.containers[1].name: Invalid value: "Main": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`spec.containers[2].name: Duplicate value: "main"`,
			`spec.initContainers[0].name: Duplicate value: "main"`,
			`spec.initContainers[1].name: Required value`,
		}},
		{name: "no command", spec: `{initContainers: [{name: init, image: i}], containers: [{name: main, image: i, args: [a]}]}`, want: []string{
			"spec.containers[0].command: Required value: the process runtime uses no image: set a command of this machine",
			"spec.initContainers[0].command: Required value: the process runtime uses no image: set a command of this machine",
		}},
		{name: "times of the pod", spec: `{terminationGracePeriodSeconds: -1, activeDeadlineSeconds: 0, containers: [{...}]}`, want: []string{
			"spec.terminationGracePeriodSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			"spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
		}},
		{name: "volumes", spec: `
  volumes:
  - {name: a, hostPath: {path: /srv}}
  - {name: a, emptyDir: {}}
  - {name: b, emptyDir: {}, secret: {secretName: s}}
  - {emptyDir: {}}
  - {name: b_c}
  containers: [{...}]`, want: []string{
			`spec.volumes[1].name: Duplicate value: "a"`,
			"spec.volumes[2]: Forbidden: may have only one of emptyDir, secret",
			"spec.volumes[3].name: Required value",
			`spec.volumes[4].name: Invalid value: "b_c": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		}},
		{name: "mounts", spec: `
  volumes: [{name: a}]
  containers:
  - name: main
    command: [serve]
    volumeDevices: [{name: a, devicePath: /dev/a}]
    volumeMounts:
    - {name: b, mountPath: /b}
    - {name: a, mountPath: ""}
    - {name: a, mountPath: c}
    - {name: a, mountPath: /}
    - {name: a, mountPath: /b/}
    - {name: a, mountPath: /d, subPath: d}
    - {mountPath: /e, subPathExpr: $(E)}
    - {name: a, mountPath: /x/..}`, want: []string{
			`spec.containers[0].volumeMounts[0].name: Not found: "b"`,
			"spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"\": must be an absolute path below /",
			`spec.containers[0].volumeMounts[2].mountPath: Invalid value: "c": must be an absolute path below /`,
			`spec.containers[0].volumeMounts[3].mountPath: Invalid value: "/": must be an absolute path below /`,
			`spec.containers[0].volumeMounts[4].mountPath: Duplicate value: "/b/"`,
			`spec.containers[0].volumeMounts[6].name: Not found: ""`,
			`spec.containers[0].volumeMounts[7].mountPath: Invalid value: "/x/..": must be an absolute path below /`,
			"spec.containers[0].volumeDevices: Forbidden: block devices are not supported: use volumeMounts and an emptyDir volume",
		}},
		{name: "environment", spec: `
  containers:
  - name: main
    command: [serve]
    envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}}, {prefix: p}]
    env:
    - {value: a}
    - {name: a=b}
    - {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}
    - {name: D, valueFrom: {configMapKeyRef: {name: c, key: k, optional: false}}}
    - {name: E, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: F, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k, optional: true}}}
    - {name: G, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: H, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}
    - {name: I, valueFrom: {fieldRef: {fieldPath: metadata.name, apiVersion: v2}}}
    - {name: J, valueFrom: {}}
    - {name: K, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: L, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}`, want: []string{
			"spec.containers[0].env[0].name: Required value",
			`spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='`,
			`spec.containers[0].env[7].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.labels['a b']": fieldPath "metadata.labels['a b']": must be one of metadata.{name,namespace,uid,labels,annotations}, metadata.labels['KEY'], metadata.annotations['KEY'], spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}`,
			"spec.containers[0].env[9].valueFrom: Required value: must have one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef",
			"spec.containers[0].env[10].valueFrom: Forbidden: may not be set together with value",
			"spec.containers[0].env[11].valueFrom: Forbidden: may have only one of fieldRef, secretKeyRef",
			"spec.containers[0].envFrom[2]: Required value: must have one of configMapRef, secretRef",
			"spec.containers[0].env[5].valueFrom.fileKeyRef: Forbidden: files of variables are not supported: set value",
		}},
		{name: "probes' numbers", spec: `
  containers:
  - name: main
    command: [serve]
    livenessProbe: {exec: {command: [a]}, initialDelaySeconds: -1, periodSeconds: -2, timeoutSeconds: -3, successThreshold: 2, failureThreshold: -4, terminationGracePeriodSeconds: 0}
    startupProbe: {exec: {command: [a]}, successThreshold: -1}
    readinessProbe: {exec: {command: [a]}, successThreshold: -1, terminationGracePeriodSeconds: 1}`, want: []string{
			"spec.containers[0].livenessProbe.initialDelaySeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			"spec.containers[0].livenessProbe.periodSeconds: Invalid value: -2: must be between 1 and 2147483647, inclusive",
			"spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -3: must be between 1 and 2147483647, inclusive",
			"spec.containers[0].livenessProbe.failureThreshold: Invalid value: -4: must be between 1 and 2147483647, inclusive",
			"spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
			"spec.containers[0].readinessProbe.successThreshold: Invalid value: -1: must be between 1 and 2147483647, inclusive",
			"spec.containers[0].startupProbe.successThreshold: Invalid value: -1: must be between 1 and 2147483647, inclusive",
		}},
		{name: "probes' handlers", spec: `
  containers:
  - {name: a, command: [serve], livenessProbe: {}}
  - {name: b, command: [serve], livenessProbe: {exec: {}, tcpSocket: {port: 1}}}
  - {name: c, command: [serve], startupProbe: {grpc: {port: 1}}}
  - {name: d, command: [serve], livenessProbe: {httpGet: {port: 0, scheme: http, protocol: HTTP2, httpHeaders: [{name: "a b", value: c}]}}}
  - {name: e, command: [serve], ports: [{name: web, containerPort: 1}], livenessProbe: {httpGet: {port: wbe}}, startupProbe: {tcpSocket: {port: "80"}}}`, want: []string{
			"spec.containers[0].livenessProbe: Required value: must have one of exec, httpGet, tcpSocket, grpc",
			"spec.containers[1].livenessProbe: Forbidden: may have only one of exec, tcpSocket",
			"spec.containers[1].livenessProbe.exec.command: Required value",
			"spec.containers[3].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
			`spec.containers[4].livenessProbe.httpGet.port: Invalid value: "wbe": must be a number or the name of a port of the container`,
			`spec.containers[4].startupProbe.tcpSocket.port: Invalid value: "80": must be a number or the name of a port of the container`,
		}},
		{name: "hooks", spec: `
  terminationGracePeriodSeconds: 5
  containers:
  - {name: a, command: [serve], lifecycle: {postStart: {exec: {command: [a]}}, preStop: {sleep: {seconds: 6}}}}
  - {name: b, command: [serve], lifecycle: {preStop: {httpGet: {port: 80}}, stopSignal: SIGINT}}
  - {name: c, command: [serve], lifecycle: {preStop: {tcpSocket: {port: 80}, sleep: {seconds: -1}}}}
  - {name: d, command: [serve], lifecycle: {preStop: {}}}`, want: []string{
			"spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: 6: must be between 0 and terminationGracePeriodSeconds, 5",
			"spec.containers[2].lifecycle.preStop: Forbidden: may have only one of tcpSocket, sleep",
			"spec.containers[2].lifecycle.preStop.sleep.seconds: Invalid value: -1: must be between 0 and terminationGracePeriodSeconds, 5",
			"spec.containers[3].lifecycle.preStop: Required value: must have one of exec, httpGet, tcpSocket, sleep",
			"spec.containers[1].lifecycle.stopSignal: Forbidden: containers are stopped with SIGTERM: remove it",
			"spec.containers[2].lifecycle.preStop.tcpSocket: Forbidden: a hook cannot use tcpSocket, in the kubelet either",
		}},
		{name: "users and groups", spec: `
  securityContext: {runAsUser: -1, runAsGroup: 4294967296, fsGroup: -1, supplementalGroups: [0, 4294967296]}
  containers: [{..., securityContext: {runAsUser: 4294967296, runAsGroup: -1, runAsNonRoot: true}}]`, want: []string{
			"spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			"spec.securityContext.runAsGroup: Invalid value: 4294967296: must be between 0 and 2147483647, inclusive",
			"spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			"spec.securityContext.supplementalGroups: Invalid value: 4294967296: must be between 0 and 2147483647, inclusive",
			"spec.containers[0].securityContext.runAsUser: Invalid value: 4294967296: must be between 0 and 2147483647, inclusive",
			"spec.containers[0].securityContext.runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
		}},
		{name: "hooks and probes of an init container", spec: `
  initContainers:
  - name: init
    command: [make]
    lifecycle: {preStop: {sleep: {seconds: 1}}}
    livenessProbe: {exec: {command: [a]}}
    readinessProbe: {exec: {command: [a]}}
    startupProbe: {exec: {command: [a]}}
  - {name: other, command: [make], readinessProbe: {exec: {command: [a]}}}
  containers: [{...}]`, want: []string{
			"spec.initContainers[0]: Forbidden: an init container may have hooks and probes only with restartPolicy: Always",
			"spec.initContainers[1]: Forbidden: an init container may have hooks and probes only with restartPolicy: Always",
		}},
		{name: "fields that change the meaning of the pod", spec: `
  os: {name: windows}
  schedulingGates: [{name: a}]
  ephemeralContainers: [{name: debug}]
  initContainers: [{name: init, command: [make], stdin: true}]
  containers: [{...}]`, want: []string{
			"spec.ephemeralContainers: Forbidden: may only be added to a running pod",
			"spec.initContainers[0].stdin: Forbidden: nothing can be attached, and a shell would exit at once: use a command that waits",
			"spec.os.name: Forbidden: containers are Linux processes",
			"spec.schedulingGates: Forbidden: a pod with scheduling gates is not started: remove them",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			metadata, spec := "name: a", tc.spec
			if tc.metadata != "" {
				metadata = tc.metadata
			}
			if !strings.HasPrefix(spec, "\n") && !strings.HasPrefix(spec, "{") {
				spec = "{" + spec + "}"
			}
			manifest := "metadata: {" + metadata + "}\nspec: " + strings.ReplaceAll(spec, "...", container)
			warnings, errs := errorTexts(t, manifest, processSupport)
			require.Equal(t, tc.want, errs)
			if len(errs) == 0 {
				require.Empty(t, warnings)
			}
		})
	}
}

func TestNotHonored(t *testing.T) {
	tests := []struct {
		name    string
		spec    string
		support Support
		want    []string
	}{
		{name: "fields of the pod and of containers", spec: `
  nodeName: node
  nodeSelector: {a: b}
  hostNetwork: true
  initContainers: [{name: init, command: [make], image: i}]
  containers:
  - {name: a, command: [serve], resources: {limits: {cpu: "1"}}}
  - {name: b, command: [serve], image: i, imagePullPolicy: Never, resources: {limits: {cpu: "1"}}, tty: true}`,
			want: []string{"not honored by the process runtime: spec.containers[1].image, spec.containers[1].imagePullPolicy, spec.containers[*].resources, spec.containers[1].tty, spec.initContainers[0].image, spec.nodeName, spec.nodeSelector"},
		},
		{name: "fields of a list in a container", spec: `
  volumes: [{name: a, emptyDir: {medium: Memory}}, {name: b, emptyDir: {sizeLimit: 1Gi}}]
  containers:
  - name: a
    command: [serve]
    ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}, {containerPort: 82, hostPort: 82}]
    volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b, readOnly: true}]
    envFrom: [{secretRef: {name: s, optional: true}}]
    env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}]`,
			want: []string{"not honored by the process runtime: spec.containers[0].ports[*].hostPort, spec.volumes[0].emptyDir.medium, spec.volumes[1].emptyDir.sizeLimit"},
		},
		{name: "readiness gates change nothing here", spec: `{containers: [{..., readinessProbe: {grpc: {port: 1}}}], readinessGates: [{conditionType: a}]}`,
			want: []string{"not honored by the process runtime: spec.readinessGates"},
		},
		{name: "fields that an API server sets", spec: `
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  preemptionPolicy: PreemptLowerPriority
  priority: 0
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: default
  serviceAccountName: default
  os: {name: linux}
  volumes: [{name: kube-api-access-x7z2p, projected: {sources: [{serviceAccountToken: {path: token}}]}}]
  containers:
  - name: main
    command: [serve]
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    volumeMounts: [{name: kube-api-access-x7z2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]`,
			want: []string{"not honored by the process runtime: spec.volumes[0].projected.sources[0].serviceAccountToken"},
		},
		{name: "a runtime that honors more",
			spec: `{hostNetwork: true, containers: [{name: main, image: i, stdin: true, tty: true, lifecycle: {stopSignal: SIGINT}, securityContext: {runAsUser: 1, procMount: Default}}]}`,
			support: Support{Name: "other", Honored: []string{"spec.hostNetwork", "spec.containers.image", "spec.containers.stdin", "spec.containers.lifecycle.stopSignal",
				"spec.containers.securityContext.runAsUser"}},
			want: []string{"not honored by the other runtime: spec.containers[0].securityContext.procMount, spec.containers[0].tty"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if tc.support.Name == "" {
				tc.support = processSupport
			}
			warnings, errs := errorTexts(t, "metadata: {name: a}\nspec: "+strings.ReplaceAll(tc.spec, "...", container), tc.support)
			require.Empty(t, errs)
			require.Equal(t, tc.want, warnings)
		})
	}
}

// TestNUL: it would end an argument, a variable or a path early.
func TestNUL(t *testing.T) {
	_, errs := errorTexts(t, `
metadata: {name: a, annotations: {note: "x\0y"}}
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: main
    command: [sh, "-c", "x\0y"]
    workingDir: "/\0"
    env: [{name: A, value: "x\0--bind"}]
    volumeMounts: [{name: v, mountPath: "/v\0", subPath: "a\0"}]
    livenessProbe: {exec: {command: ["\0"]}}`, processSupport)
	for _, path := range []string{"metadata.annotations.note", "spec.containers[0].command[2]", "spec.containers[0].workingDir", "spec.containers[0].env[0].value",
		"spec.containers[0].volumeMounts[0].mountPath", "spec.containers[0].volumeMounts[0].subPath", "spec.containers[0].livenessProbe.exec.command[0]"} {
		require.Contains(t, errs, path+": Invalid value: must not contain a NUL")
	}
}

func TestRefused(t *testing.T) {
	support := Support{
		Name:    "other",
		Honored: []string{"spec.containers.image", "spec.containers.lifecycle", "spec.os"},
	}
	warnings, errs := errorTexts(t, `{metadata: {name: a}, spec: {os: {name: windows}, containers: [{name: main, image: i, lifecycle: {preStop: {tcpSocket: {port: 1}}, stopSignal: SIGINT}}]}}`, support)
	require.Empty(t, warnings)
	require.Equal(t, []string{
		"spec.containers[0].lifecycle.preStop.tcpSocket: Forbidden: a hook cannot use tcpSocket, in the kubelet either",
		"spec.containers[0].lifecycle.stopSignal: Forbidden: containers are stopped with SIGTERM: remove it",
		"spec.os.name: Forbidden: containers are Linux processes",
	}, errs, "a field below an honored field may be refused")

	_, errs = errorTexts(t, `{metadata: {name: a}, spec: {containers: [{name: main}]}}`, support)
	require.Equal(t, []string{"spec.containers[0].image: Required value"}, errs)
}

// Without a runtime, a pod is invalid only if every runtime refuses it.
func TestValidateWithoutRuntime(t *testing.T) {
	warnings, errs := errorTexts(t, `{metadata: {name: a}, spec: {nodeName: n, containers: [{name: main, stdin: true}, {name: A B}]}}`, Support{})
	require.Empty(t, warnings)
	require.Len(t, errs, 1)
	require.Contains(t, errs[0], `spec.containers[1].name: Invalid value: "A B"`)

	// An API server accepts these.
	_, errs = errorTexts(t, `{metadata: {name: a}, spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: data}, {name: v, mountPath: /a}, {name: v, mountPath: /a/}], livenessProbe: {httpGet: {port: web}}}]},
  status: {containerStatuses: [{name: main, state: {terminated: {exitCode: 1, message: "x\0y"}}}]}}`, Support{})
	require.Empty(t, errs)
}

// FuzzValidate searches for a pod with which Default or Validate panics, or that is
// valid and cannot be started.
func FuzzValidate(f *testing.F) {
	for _, spec := range []string{
		"containers: [{name: main, image: i, command: [serve, $(A)], env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels['a']}}}]}]",
		"containers: [{name: main, command: [a], ports: [{name: web, containerPort: 1}], livenessProbe: {httpGet: {port: web}}, lifecycle: {preStop: {sleep: {seconds: 1}}}}]",
		"volumes: [{name: a}, {name: b, hostPath: {path: /}}], containers: [{name: main, command: [a], volumeMounts: [{name: a, mountPath: /a}]}]",
		"containers: [{name: main, command: [a], env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}]}]",
	} {
		f.Add([]byte("metadata: {name: a}\nspec: {" + spec + "}"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &v1.Pod{}
		if yaml.Unmarshal(data, pod) != nil {
			return
		}
		Default(pod)
		again := pod.DeepCopy()
		Default(again)
		require.Equal(t, pod, again)
		_, errs := Validate(pod, processSupport)
		for _, err := range errs {
			require.NotEqual(t, field.ErrorTypeInternal, err.Type)
			require.NotEmpty(t, err.Field)
		}
		if len(errs) > 0 {
			return
		}
		_, _, errs = Objects{}.Resolve(pod)
		for _, err := range errs {
			require.NotEmpty(t, err.Field)
		}
		if len(errs) > 0 {
			return
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			env, err := Environment(pod, &c, "127.0.0.1")
			require.NoError(t, err)
			require.NotEmpty(t, Command(&c, env))
		}
	})
}
