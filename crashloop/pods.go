// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// podOf returns a pod made from the pod template of an object, with the name of the object,
// and the path of the pod's spec. A pod is its own template and keeps its status. podOf
// returns nil for objects without a pod template.
func podOf(object runtime.Object) (*v1.Pod, *field.Path) {
	var template *v1.PodTemplateSpec
	path := field.NewPath("spec", "template", "spec")
	switch o := object.(type) {
	case *v1.Pod:
		return o.DeepCopy(), field.NewPath("spec")
	case *v1.PodTemplate:
		template, path = &o.Template, field.NewPath("template", "spec")
	case *v1.ReplicationController:
		template = o.Spec.Template
	case *appsv1.Deployment:
		template = &o.Spec.Template
	case *appsv1.ReplicaSet:
		template = &o.Spec.Template
	case *appsv1.StatefulSet:
		template = &o.Spec.Template
	case *appsv1.DaemonSet:
		template = &o.Spec.Template
	case *batchv1.Job:
		template = &o.Spec.Template
	case *batchv1.CronJob:
		template, path = &o.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
	}
	if template == nil {
		return nil, nil
	}
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	owner, err := meta.Accessor(object)
	utilruntime.Must(err)
	pod.Name, pod.GenerateName, pod.Namespace = owner.GetName(), owner.GetGenerateName(), owner.GetNamespace()
	if set, ok := object.(*appsv1.StatefulSet); ok {
		pod.Name += "-0"
		for _, claim := range set.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim.Name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name},
			}})
		}
	}
	return pod, path
}

// podManifest is the pod of an object in a manifest.
type podManifest struct {
	// file and object are the names for issues. path is the path of the pod's spec in the
	// object.
	file, object string
	path         *field.Path
	source       metav1.Object
	// pod has its defaults after readPods. files is set after addPods.
	pod   *v1.Pod
	files podspec.Files
}

// newErrorIssue returns the issue of an error about the pod. The path of its field becomes
// the path in the object.
func (p podManifest) newErrorIssue(err *field.Error) issueReport {
	if rest, ok := strings.CutPrefix(err.Field, "spec"); ok {
		err.Field = p.path.String() + rest
	}
	return newErrorIssue(p.file, p.object, err)
}

// validate sets the defaults of the pod and validates it. An invalid pod has the same
// errors in every command; a command that runs it also passes the support of its runtime.
func (p podManifest) validate(gates restartpod.Gates, support podspec.Support) (warnings []string, errs field.ErrorList) {
	podspec.Default(p.pod)
	warnings, errs = podspec.Validate(p.pod, support)
	return warnings, append(restartrules.Validate(&p.pod.Spec, field.NewPath("spec"), restartrules.Options{Gates: gates}), errs...)
}

// The warnings for input without pods.
const (
	noManifest = "the directory has no .yaml, .yml or .json file"
	noItems    = "the list is empty"
	noPod      = "no pod and no pod template found"
	noTemplate = "skipped: neither a pod nor a known kind with a pod template"
)

// readWorkloads reads the pods, pod templates, ConfigMaps and Secrets in files of manifests.
func (r *issues) readWorkloads(files []string, stdin io.Reader) (workloads []podManifest, objects podspec.Objects) {
	objects = podspec.Objects{}
	for _, file := range files {
		found, issues := false, len(r.Warnings)+len(r.Errors)
		r.readManifest(file, stdin, func(file, name string, object runtime.Object, pod *v1.Pod, path *field.Path) {
			switch {
			case objects.Add(object):
				found = true
			case pod == nil:
				r.Warnings = append(r.Warnings, newIssue(file, name, "", noTemplate))
			default:
				found = true
				workloads = append(workloads, podManifest{file: file, object: name, path: path, source: object.(metav1.Object), pod: pod})
			}
		})
		if !found && len(r.Warnings)+len(r.Errors) == issues {
			r.Warnings = append(r.Warnings, newIssue(manifestName(file), "", "", noPod))
		}
	}
	return workloads, objects
}

func (p podManifest) kind() string {
	kind, _, _ := strings.Cut(p.object, " ")
	return kind
}

// controller returns the controller of the object if it is in workloads, a map of the names
// of objects. The output of kubectl get all has a Deployment, its ReplicaSet and its pods.
func (p podManifest) controller(workloads map[string]podManifest) (owner podManifest, ok bool) {
	if ref := metav1.GetControllerOf(p.source); ref != nil {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.source.GetNamespace(), Name: ref.Name}}
		owner, ok = workloads[objectName(object, ref.Kind)]
		ok = ok && owner.source != p.source && (owner.source.GetUID() == "" || owner.source.GetUID() == ref.UID)
	}
	return owner, ok
}

// readPods reads the pods, ConfigMaps and Secrets in files of manifests. commands maps the
// names of containers to their commands. readPods adds an error if two pods have the same
// namespace and name. It does not validate anything else.
func (r *issues) readPods(files []string, stdin io.Reader, commands map[string]string) (pods []podManifest, objects podspec.Objects) {
	workloads, objects := r.readWorkloads(files, stdin)
	seen := map[string]string{} // The file of each namespace and name.
	unused := maps.Clone(commands)
	byName := map[string]podManifest{}
	for _, p := range workloads {
		byName[p.object] = p
	}
	for _, p := range workloads {
		if owner, ok := p.controller(byName); ok {
			r.Warnings = append(r.Warnings, newIssue(p.file, p.object, "metadata.ownerReferences", "skipped: its controller "+owner.object+" runs instead"))
			continue
		}
		pod := p.pod
		for _, c := range podspec.Containers(&pod.Spec) {
			if command, ok := commands[c.Name]; ok {
				c.Command = []string{"/bin/sh", "-c", command, c.Name}
				delete(unused, c.Name)
			}
		}
		podspec.Default(pod)
		key := pod.Namespace + "/" + pod.Name
		if p.kind() != "Pod" && seen[key] != "" && pod.Name != "" {
			pod.Name += "-" + strings.ToLower(p.kind()) // A Deployment and a Job may have the same name.
			key = pod.Namespace + "/" + pod.Name
		}
		if other, ok := seen[key]; ok && pod.Name != "" {
			err := field.Duplicate(field.NewPath("metadata", "name"), key)
			err.Detail = "also in " + other
			r.Errors = append(r.Errors, newErrorIssue(p.file, p.object, err))
			continue
		}
		seen[key] = p.file
		pods = append(pods, p)
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		r.Errors = append(r.Errors, newIssue("", "", "--command", fmt.Sprintf("no container is named %q", name)))
	}
	return pods, objects
}

// addStandIns gives each container without a command a stand-in for the command of its
// image, and returns these containers and a warning about each. A stand-in runs if the
// container would be restarted after a success, and otherwise succeeds.
func (p *podManifest) addStandIns() (standIns []*v1.Container, warnings []issueReport) {
	// The trap comes first: PID 1 of a namespace ignores a SIGTERM before it.
	const runs = `trap 'exit 0' TERM; echo "$0"; while :; do /bin/sleep 1000 & wait; done`
	for path, c := range podspec.Containers(&p.pod.Spec) {
		if len(c.Command) > 0 {
			continue
		}
		policy := v1.ContainerRestartPolicy(p.pod.Spec.RestartPolicy)
		if strings.HasPrefix(path.String(), "spec.initContainers") {
			policy = v1.ContainerRestartPolicyOnFailure
		}
		script, does := `echo "$0"`, "it succeeds at once"
		if ptr.Deref(c.RestartPolicy, policy) == v1.ContainerRestartPolicyAlways {
			script, does = runs, "it runs until it is stopped"
		}
		c.Command = []string{"/bin/sh", "-c", script, fmt.Sprintf("stand-in for the image %q: %s", c.Image, does)}
		standIns = append(standIns, c)
		warnings = append(warnings, newIssue(p.file, p.object, p.path.String()+strings.TrimPrefix(path.String(), "spec"),
			"no command: a stand-in for the image runs, without probes and hooks; "+does+" (--command "+c.Name+"='...' runs a command instead)"))
	}
	return standIns, warnings
}

// addPods returns the pods of the manifests, validated for a runtime. It adds their
// warnings and errors to the report.
func (r *report) addPods(manifests []string, stdin io.Reader, commands map[string]string, gates restartpod.Gates, support podspec.Support) []podManifest {
	pods, objects := r.readPods(manifests, stdin, commands)
	for i := range pods {
		p := &pods[i]
		var standIns []*v1.Container
		var notes []issueReport
		if support.NeedsCommand {
			standIns, notes = p.addStandIns()
		}
		warnings, errs := p.validate(gates, support)
		for _, c := range standIns { // Now they are valid, but nothing answers them.
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle, c.WorkingDir = nil, nil, nil, nil, ""
		}
		if len(errs) == 0 {
			r.Warnings = append(r.Warnings, notes...)
			for _, w := range restartrules.Warnings(&p.pod.Spec, field.NewPath("spec"), gates) {
				r.Warnings = append(r.Warnings, newIssue(p.file, p.object, w.Field, w.Detail))
			}
			var missing []string
			p.files, missing, errs = objects.Resolve(p.pod)
			warnings = append(warnings, missing...)
		}
		for _, text := range warnings {
			r.Warnings = append(r.Warnings, newIssue(p.file, p.object, "", text))
		}
		for _, err := range errs {
			r.Errors = append(r.Errors, p.newErrorIssue(err))
		}
	}
	return pods
}
