// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Output that cannot be written is lost, and the pods continue.
func TestRunOnFullDisk(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(onFailure, container("main"))})
	c.exit("main", 1)
	c.exit("main", 0)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	c.cmd.Stdout = full
	c.start()
	require.Equal(t, exitFailed, c.wait())
	require.Equal(t, `{"severity":"error","detail":"the output is not complete: write /dev/stdout: no space left on device"}`+"\n", c.errors())
	require.FileExists(t, filepath.Join(c.dir(), "logs", "main", "1.log"), "of the restart")
	require.Empty(t, processesOf(c.pod.Name))
}

func volume(pod *v1.Pod, name string) *v1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	return pod
}

func mount(volume, path string) option {
	return func(c *v1.Container) {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: path})
	}
}

func env(name, value string) option {
	return func(c *v1.Container) { c.Env = append(c.Env, v1.EnvVar{Name: name, Value: value}) }
}

// The environment and volumes of a container, and what a pod leaves.
func TestRunEnvironmentAndVolumes(t *testing.T) {
	t.Parallel()
	pod := volume(newPod(never,
		script("write", `echo "$GREETING" >/data/greeting; echo "$FILE"`, asInit, mount("data", "/data"), env("GREETING", "hello"), env("FILE", "/data/greeting")),
		script("read", `env | sort; pwd; echo $0 $1; cat greeting "$FILE"; echo error >&2`, mount("data", "/data"), env("NAME", "you"), env("FILE", "/data/greeting"),
			func(c *v1.Container) { c.WorkingDir, c.Args = "/data", []string{"$(NAME)", "/data/x"} })), "data")
	pod.Spec.Containers[0].Command[2] += `; test -z "$` + asCommand + `"`
	c := startRun(t, pod)
	c.ends(exitSucceeded, `
		write#1 running
		write#1 exited(0)
		read#1 running
		read#1 exited(0)
		pod PodSucceeded
		pod Succeeded restarts=0 write=0 read=0`)
	require.Equal(t, []string{"/data/greeting"}, c.log("write", 0))
	require.ElementsMatch(t, []string{
		"CTL=" + c.ctl, "FILE=/data/greeting", "HOME=" + os.Getenv("HOME"), "HOSTNAME=" + pod.Name, "NAME=you", "PATH=" + os.Getenv("PATH"), "PWD=/data",
		"/data", "you /data/x", "hello", "hello", "error",
	}, c.log("read", 0))
}

func TestRunProbesAndErrors(t *testing.T) {
	live := container("main", probed)
	live.LivenessProbe = &v1.Probe{ProbeHandler: execProbe("read x <$CTL/main.hook; echo of $x; exit $x"), TimeoutSeconds: 1000, PeriodSeconds: 1, FailureThreshold: 2}
	down := container("main")
	down.StartupProbe = &v1.Probe{ProbeHandler: execProbe("echo no; exit 1"), InitialDelaySeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1}
	late := newPod(always, container("main", preStop("read x <$CTL/main.hook")))
	late.Spec.ActiveDeadlineSeconds = ptr.To[int64](3) // Enough time to start.
	missing := v1.Container{Name: "main", Command: []string{"no-such-command"}}
	runScenarios(t, []scenario{
		{name: "exec probes", status: exitSucceeded, pod: newPod(onFailure, live, container("other")), script: `
			main#1 running
			other#1 running
			# The liveness probe starts after the startup probe.
			> main.probe
			> main.hook 1
			> main.hook 0
			> main.hook 2
			> main.hook 3
			main Unhealthy: Liveness probe failed: of 1
			main Unhealthy: Liveness probe failed: of 2
			main Unhealthy: Liveness probe failed: of 3
			main Killing: Container main failed liveness probe, will be restarted
			main#1 exited(143)
			main#2 running
			> main.probe
			> main 0
			main#2 exited(0)
			> other 0
			other#1 exited(0)
			pod PodSucceeded
			pod Succeeded restarts=0 main=1 other=0`},
		{name: "startup probe", status: exitFailed, pod: newPod(never, down), script: `
			main#1 running
			main Unhealthy: Startup probe failed: no
			main Killing: Container main failed startup probe
			main#1 exited(143)
			pod PodFailed
			pod Failed restarts=0 main=0`},
		{name: "active deadline", status: exitFailed, pod: late, script: `
			> main.hook
			main#1 running
			pod DeadlineExceeded: Pod was active on the node longer than the specified deadline
			main Killing: Stopping container main
			main#1 exited(143)
			pod PodFailed: DeadlineExceeded: Pod was active on the node longer than the specified deadline
			pod Failed restarts=0 main=0`},
		{name: "command not found", status: 130, pod: newPod(always, missing, container("other")), script: `
			main Failed: Error: exec: "no-such-command": executable file not found in $PATH
			other#1 running
			main#1 exited(128) StartError: exited with code 128: exec: "no-such-command": executable file not found in $PATH
			main Failed: Error: exec: "no-such-command": executable file not found in $PATH
			main#2 exited(128) StartError: exited with code 128: exec: "no-such-command": executable file not found in $PATH
			main BackOff: Back-off restarting failed container main in pod POD_default(POD): waiting 2s
			main waits 2s
			> interrupt
			... other#1 exited(143)
			pod PodFailed
			pod Failed restarts=0 main=1 other=0`},
		{name: "command not found, Never", status: exitFailed, pod: newPod(never, missing), script: `
			main Failed: Error: exec: "no-such-command": executable file not found in $PATH
			main#1 exited(128) StartError: exited with code 128: exec: "no-such-command": executable file not found in $PATH
			pod PodFailed
			pod Failed restarts=0 main=0`},
	})
}

func TestRunNetworkProbes(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusOK)
	probes := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		probes <- r.URL.String() + " " + r.Header.Get("X-Probe")
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)

	web := container("web", asSidecar)
	web.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: int32(number)}}
	web.StartupProbe = &v1.Probe{TimeoutSeconds: 1000, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(number)}}}
	web.LivenessProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/healthy?yes", Port: intstr.FromString("http"), HTTPHeaders: []v1.HTTPHeader{{Name: "X-Probe", Value: "liveness"}},
	}}}
	c := startRun(t, newPod(never, web, container("main")), "--config", "testdata/run/kubelet.yaml", "--host-network", "-")
	c.expect(`
		web#1 running
		main#1 running`)
	for range 2 {
		require.Equal(t, "/healthy?yes liveness", <-probes)
	}
	status.Store(http.StatusServiceUnavailable)
	c.expect(`
		web Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 503
		web Killing: Init container web failed liveness probe
		web#1 exited(143)`)
	status.Store(http.StatusOK)
	c.expect("web#2 running")
	c.signal(os.Interrupt)
	c.until("pod Failed restarts=0")
	c.ends(130, "")
}

// asServer is set to the address at which this executable serves in a container.
const asServer = "CRASHLOOP_TEST_AS_SERVER"

// serve serves HTTP, and exits with code 9 after a request for /stop.
func serve(address string) {
	http.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) { os.Exit(9) })
	http.HandleFunc("/healthy", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Host) })
	panic(http.ListenAndServe(address, nil))
}

// Probes and hooks reach a pod with its own network, and so do its other containers.
// Nothing else does. Ports below 1024 need no root.
func TestRunPodNetwork(t *testing.T) {
	t.Parallel()
	const port = 81
	host, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer host.Close()
	get := func(path string) *v1.HTTPGetAction { return &v1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)} }
	web := v1.Container{Name: "web", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), Env: []v1.EnvVar{{Name: asServer, Value: fmt.Sprintf(":%d", port)}}}
	web.StartupProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1000, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}}
	web.LivenessProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{HTTPGet: get("/healthy")}}
	main := script("main", `read x <$CTL/main; exit $x`)
	main.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: get("/healthy")}}
	other := container("other")
	other.StartupProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(host.Addr().(*net.TCPAddr).Port)}}}
	pod := newPod(never, web, main, other)
	c := newCommand(t, []*v1.Pod{pod}, "--config", "testdata/run/kubelet.yaml", "-")
	program := filepath.Join(c.ctl, "server")
	exe, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, exe, 0o755))
	manifest := c.cmd.Stdin.(*bytes.Buffer)
	text := strings.Replace(manifest.String(), "name: web\n", "name: web\n    command: ["+program+"]\n", 1)
	manifest.Reset()
	manifest.WriteString(text)
	c.start().read()
	c.until("main#1 running")
	_, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	c.until("other Unhealthy: Startup probe failed: dial tcp")
	c.signal(os.Interrupt)
	c.until("pod Failed restarts=0")
	c.ends(130, "")
}

func TestRunStartupProbeWithoutServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	web := container("web", asSidecar)
	web.StartupProbe = &v1.Probe{InitialDelaySeconds: 1, TimeoutSeconds: 1000, FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}}
	startRun(t, newPod(never, web, container("main"))).ends(130, fmt.Sprintf(`
		web#1 running
		web Unhealthy: Startup probe failed: dial tcp 127.0.0.1:%d: connect: connection refused
		web Killing: Init container web failed startup probe
		web#1 exited(143)
		web#2 running
		> SIGINT
		# The probe may fail again in the meantime.
		... pod Failed restarts=0`, port))
}

// Several pods are independent, except for the exit status.
func TestRunPods(t *testing.T) {
	t.Parallel()
	a, b := newPod(never, script("main", "exit 0")), newPod(never, script("main", "read code <$CTL/b; exit $code"))
	b.Name, b.UID = a.Name+"-b", a.UID+"-b"
	c := newCommand(t, []*v1.Pod{a, b})
	c.fifo("b")
	c.start().read()
	label := b.Name + "/"
	lines := c.until("pod PodSucceeded")
	c.exit("b", 3)
	lines = append(lines, c.until(label+"pod PodFailed")...)
	require.ElementsMatch(t, []string{
		"main#1 running", "main#1 exited(0)", "pod PodSucceeded",
		label + "main#1 running", label + "main#1 exited(3)", label + "pod PodFailed",
	}, lines)
	c.ends(exitFailed, `
		pod Succeeded restarts=0 main=0
		`+label+`pod Failed restarts=0 main=0`)
}

// A second run of a pod fails, and changes nothing of the first.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	pod := volume(newPod(never, script("main", "echo >/data/file; echo >$CTL/main.ready; read x <$CTL/main; exec cat /data/file", mount("data", "/data"))), "data")
	c := startRun(t, pod)
	c.expect("main#1 running")
	second := newCommand(t, []*v1.Pod{pod}).in(c.root).start().read()
	second.expect("end")
	require.Equal(t, exitFailed, second.wait())
	require.Equal(t, fmt.Sprintf(`{"severity":"error","detail":"pod default/%s: another crashloop runs this pod (%s is locked): stop it, or set another --root-dir"}`+"\n", pod.Name, filepath.Join(c.root, "default_"+pod.Name+".lock")), second.errors())
	c.tell("main", "")
	c.ends(exitSucceeded, `
		main#1 exited(0)
		pod PodSucceeded
		pod Succeeded restarts=0 main=0`)
}

// The folder of a changed manifest replaces the earlier one, unless containers may still
// use that.
func TestRunKeepsOneFolder(t *testing.T) {
	t.Parallel()
	pod := newPod(never, script("main", "exit 0"))
	first := startRun(t, pod)
	first.until("pod Succeeded restarts=0")
	first.ends(exitSucceeded, "")
	used := filepath.Join(first.root, "default_"+pod.Name+"_used")
	require.NoError(t, os.Mkdir(used, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(used, "status.json"), nil, 0o600))
	old := first.dir()
	require.DirExists(t, old)
	pod.UID += "-changed"
	second := newCommand(t, []*v1.Pod{pod}).in(first.root).start().read()
	second.until("pod Succeeded restarts=0")
	require.Equal(t, exitSucceeded, second.wait())
	require.NoDirExists(t, old)
	require.DirExists(t, second.dir())
	require.DirExists(t, used)
}

// A pod that cannot run is reported at once, while others run.
func TestRunOneCannot(t *testing.T) {
	t.Parallel()
	held := newPod(never, container("main"))
	first := startRun(t, held)
	first.expect("main#1 running")
	other := newPod(never, script("other", "read x <$CTL/other"))
	c := newCommand(t, []*v1.Pod{other, held}).in(first.root).start().read()
	c.until(held.Name + "/pod CannotRun: pod default/" + held.Name + ": another crashloop runs this pod (ROOT/default_" + held.Name + ".lock is locked): stop it, or set another --root-dir")
	c.tell("other", "")
	require.Equal(t, exitFailed, c.wait())
	first.exit("main", 0)
	first.ends(exitSucceeded, `
		main#1 exited(0)
		pod PodSucceeded
		pod Succeeded restarts=0 main=0`)
}

func TestRun200Containers(t *testing.T) {
	t.Parallel()
	var containers []v1.Container
	for n := range 200 {
		containers = append(containers, container("c"+strconv.Itoa(n)))
	}
	c := startRun(t, withGrace(newPod(onFailure, containers...), 600))
	for _, container := range containers {
		c.expect(container.Name + "#1 running")
	}
	c.exit("c100", 1)
	c.expect(`
		c100#1 exited(1)
		c100#2 running`)
	c.expect("> interrupt")
	c.until("pod Failed restarts=0")
	c.ends(130, "")
	for _, container := range containers {
		require.Contains(t, c.seen, fmt.Sprintf("%s#%d exited(143)", container.Name, c.starts[container.Name]))
	}
}

// A container that writes faster than stdout is read delays no other.
func TestRunFlood(t *testing.T) {
	t.Parallel()
	pod := newPod(onFailure, script("flood", onTerm+"echo >$CTL/flood.ready; yes yes | head -n 100000; read x <$CTL/flood"), container("main"))
	c := newCommand(t, []*v1.Pod{pod}, "-o", "plain", "--config", "testdata/run/kubelet.yaml", "-").start()
	c.listen("flood.ready")
	c.listen("main.ready")
	// More than the pipe of stdout can hold.
	require.Eventually(t, func() bool {
		info, err := os.Stat(filepath.Join(c.dir(), "logs", "flood", "0.log"))
		return err == nil && info.Size() > 1<<19
	}, patience, time.Millisecond)
	c.exit("main", 1)
	c.listen("main.ready")
	c.exit("main", 0)
	c.signal(os.Interrupt)
	output, err := io.ReadAll(c.stdout)
	require.NoError(t, err)
	require.Equal(t, 130, c.wait())
	require.Empty(t, processesOf(pod.Name))
	printed := bytes.Count(output, []byte(" flood | yes\n"))
	for _, leftOut := range regexp.MustCompile("([0-9]+) lines of output were not read in time").FindAllSubmatch(output, -1) {
		n, err := strconv.Atoi(string(leftOut[1]))
		require.NoError(t, err)
		printed += n
	}
	require.Len(t, c.log("flood", 0), printed)
}

// The log of main cannot be written, that of other can.
func TestRunLogsOnFullDisk(t *testing.T) {
	t.Parallel()
	write := "echo one; echo two; read x <$CTL/"
	c := newCommand(t, []*v1.Pod{newPod(never, script("main", write+"main"), script("other", write+"other"))}, "-o", "plain", "-")
	dir := filepath.Join(c.dir(), "logs", "main")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, "0.log")))
	require.NoError(t, os.WriteFile(filepath.Join(c.root, ".crashloop"), nil, 0o600))
	c.start()
	c.tell("main", "")
	c.tell("other", "")
	output, err := io.ReadAll(c.stdout)
	require.NoError(t, err)
	require.Equal(t, exitSucceeded, c.wait(), "%s", output)
	require.Equal(t, 1, bytes.Count(output, []byte("IncompleteLog")))
	require.Regexp(t, "main +IncompleteLog +cannot write the log, so it will be incomplete: write .*/main/0.log: no space left on device\n", string(output))
	for _, line := range []string{"main  | one", "main  | two", "other | one", "other | two"} {
		require.Contains(t, string(output), line+"\n")
	}
	require.Equal(t, []string{"one", "two"}, c.log("other", 0))
	require.Empty(t, processesOf(c.pod.Name))
}

// Gates for upstream's behavior have a warning: run does not honor them.
func TestRunWarnsOfGates(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, script("main", "exit 0"))}, "--feature-gates", "KubeletStrictCrashLoopBackOff=false,KubeletRestartAllContainersBackOff=false", "-").start().read()
	c.until("end")
	require.Equal(t, exitSucceeded, c.wait())
	require.Equal(t, `{"severity":"warning","field":"featureGates","detail":"KubeletStrictCrashLoopBackOff=false is not honored: crashloop run only has the behavior with the gate enabled"}
{"severity":"warning","field":"featureGates","detail":"KubeletRestartAllContainersBackOff=false is not honored: crashloop run only has the behavior with the gate enabled"}
`, c.errors())
}

func TestRunCannotWrite(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, script("main", "exit 0"))}).in("/dev/null/root").start().read()
	c.until("end")
	require.Equal(t, exitFailed, c.wait())
	require.Equal(t, `{"severity":"error","detail":"pod default/`+c.pod.Name+`: mkdir /dev/null: not a directory: set another --root-dir"}`+"\n", c.errors())
}

// The golden file of a case is testdata/run/refused-NAME.golden.
func TestRunRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want int
	}{
		{"invalid", []string{"testdata/run-invalid.yaml"}, exitRefused},
		{"other-kinds", []string{"testdata/run-other-kinds.yaml", "testdata/missing.yaml"}, exitRefused},
		{"same-name", []string{"testdata/run-same-name.yaml", "testdata/run-ignored.yaml"}, exitRefused},
		{"malformed", []string{"testdata/pods-malformed.yaml"}, exitRefused},
		{"stdin", []string{"-"}, exitRefused},
		{"config", []string{"--config", "testdata/slow.yaml", "testdata/run-ignored.yaml"}, exitRefused},
		{"no-manifest", nil, exitUsage},
		{"format", []string{"-o", "yaml", "testdata/run-ignored.yaml"}, exitUsage},
		{"flag", []string{"--runtime", "cri", "testdata/run-ignored.yaml"}, exitUsage},
		{"gate", []string{"--feature-gates", "RestartPodOnContainerExit=true", "testdata/run-ignored.yaml"}, exitRefused},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.want, run(append([]string{"run", "--root-dir", root}, tc.args...), strings.NewReader(""), &stdout, &stderr))
			require.Empty(t, stdout.String())
			compareGolden(t, "refused-"+tc.name, stderr.String())
			require.NoDirExists(t, root)
		})
	}
}
