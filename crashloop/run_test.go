// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/poddir"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/printer"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// asCommand is set in a process that runs the command.
const asCommand = "CRASHLOOP_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if address := os.Getenv(asServer); address != "" {
		serve(address)
	}
	// Processes inherit ignored signals, but not handled ones. SIGHUP is ignored under
	// nohup, SIGINT in the background of a script. A command under test has to start as
	// on a terminal.
	for _, s := range terminalSignals {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	// Most tests wait for processes. A -parallel on the command line wins, because Run parses it later. It is also the number
	// of workers of a fuzz target, which do not wait.
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz=") }) {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// terminalSignals are the signals that a Go program keeps ignoring if they were ignored
// at its start.
var terminalSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT}

// patience is the longest wait. Only failing tests wait so long.
const patience = 3 * time.Minute

// command is a run of the command.
type command struct {
	t      *testing.T
	pod    *v1.Pod
	cmd    *exec.Cmd
	ctl    string
	root   string
	stdout *os.File
	stderr string
	// events is closed at the end of stdout.
	events chan printer.Event
	waited chan struct{}
	seen   []string
	// fifos has the pipes in ctl: from NAME a container reads its exit code, to
	// NAME.ready it writes when it is ready, and its startup probe and other commands
	// read NAME.probe and NAME.hook.
	fifos map[string]*os.File
	// created has the containers with an event Created and no Started yet.
	created map[string]bool
	// starts has the number of starts, and exits the last exit, by container.
	starts map[string]int
	exits  map[string]time.Time
	// trigger is the container that triggered the last restart of the pod.
	trigger string
	// summary has the restarts of the containers in the summary of a pod.
	summary string
}

// newCommand returns a command that runs the pods. Without arguments it uses the
// configuration testdata/run/kubelet.yaml and reads the pods from stdin.
func newCommand(t *testing.T, pods []*v1.Pod, args ...string) *command {
	c := &command{
		t: t, pod: pods[0], ctl: outsideTmp(t), root: filepath.Join(t.TempDir(), poddir.Folder), events: make(chan printer.Event, 1000), waited: make(chan struct{}),
		fifos: map[string]*os.File{}, created: map[string]bool{}, starts: map[string]int{}, exits: map[string]time.Time{},
	}
	if len(args) == 0 {
		args = []string{"--config", "testdata/run/kubelet.yaml", "-"}
	}
	c.cmd = exec.Command("/proc/self/exe", append([]string{"run", "-o", "json", "--root-dir", filepath.Dir(c.root), "--host-dir", c.ctl}, args...)...)
	c.cmd.Env = append(os.Environ(), asCommand+"=1",
		"GORACE=atexit_sleep_ms=0 halt_on_error=1") // The race detector would take a second at the end.
	c.stderr = filepath.Join(t.TempDir(), "stderr")
	var manifests bytes.Buffer
	for _, pod := range pods {
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].Env = append(list[i].Env, v1.EnvVar{Name: "CTL", Value: c.ctl})
				for _, suffix := range []string{"", ".ready", ".probe", ".hook"} {
					if strings.Contains(fmt.Sprint(list[i]), "$CTL/"+list[i].Name+suffix) {
						c.fifo(list[i].Name + suffix)
					}
				}
			}
		}
		data, err := yaml.Marshal(pod)
		require.NoError(t, err)
		manifests.WriteString("---\n" + string(data))
	}
	c.cmd.Stdin = &manifests
	return c
}

// in sets another --root-dir.
func (c *command) in(root string) *command {
	c.cmd.Args[slices.Index(c.cmd.Args, filepath.Dir(c.root))] = filepath.Dir(root)
	c.root = root
	return c
}

// start starts the command.
func (c *command) start() *command {
	t := c.t
	if !slices.Contains(c.cmd.Args, "--unconfined") && c.cmd.Env[len(c.cmd.Env)-1] != noPrograms {
		needBubblewrap(t)
	}
	stdout, writer, err := os.Pipe()
	require.NoError(t, err)
	stderr, err := os.Create(c.stderr)
	require.NoError(t, err)
	c.stdout, c.cmd.Stderr = stdout, stderr
	if c.cmd.Stdout == nil {
		c.cmd.Stdout = writer
	}
	require.NoError(t, c.cmd.Start())
	writer.Close()
	stderr.Close()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.waited
		stdout.Close()
		defer func() { // A failure may leave processes.
			for _, p := range processesOf(c.pod.Name) {
				pid, _, _ := strings.Cut(p, ":")
				n, _ := strconv.Atoi(pid)
				syscall.Kill(n, syscall.SIGKILL)
			}
		}()
		if !t.Failed() {
			c.requireNoProcess()
		} else {
			t.Logf("lines:\n%s\nstderr:\n%s", strings.Join(c.seen, "\n"), c.errors())
		}
	})
	go func() {
		c.cmd.Wait()
		close(c.waited)
	}()
	return c
}

// sandboxHere returns an error if bubblewrap is not installed, or can make no sandbox, as in
// most containers. It does not use the code of agent/process, whose errors are failures.
var sandboxHere = sync.OnceValue(func() error {
	out, err := exec.Command("bwrap", "--bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-net", "--proc", "/proc", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("bubblewrap makes no sandbox here: %w %s", err, out)
	}
	return nil
})

// needBubblewrap skips the test where there is no sandbox.
func needBubblewrap(t *testing.T) {
	t.Helper()
	if err := sandboxHere(); err != nil {
		t.Skip(err)
	}
}

// read reads the events in a goroutine.
func (c *command) read() *command {
	go func() {
		defer close(c.events)
		lines := bufio.NewScanner(c.stdout)
		for lines.Scan() {
			var e printer.Event
			d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			d.DisallowUnknownFields()
			if err := d.Decode(&e); err != nil {
				e.Reason = fmt.Sprintf("%s: %v", lines.Bytes(), err)
			}
			c.events <- e
		}
	}()
	return c
}

func startRun(t *testing.T, pod *v1.Pod, args ...string) *command {
	return newCommand(t, []*v1.Pod{pod}, args...).start().read()
}

// fifo makes a pipe between containers and the test. Neither waits until the other
// opens it.
func (c *command) fifo(name string) *os.File {
	path := filepath.Join(c.ctl, name)
	require.NoError(c.t, syscall.Mkfifo(path, 0o600))
	require.NoError(c.t, os.Chmod(path, 0o666)) // If root runs the test, containers have another user.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { f.Close() })
	c.fifos[name] = f
	return f
}

// tell writes a line into a pipe.
func (c *command) tell(fifo, line string) {
	c.t.Helper()
	require.Contains(c.t, c.fifos, fifo)
	_, err := c.fifos[fifo].WriteString(line + "\n")
	require.NoError(c.t, err)
}

// exit makes a container exit, at once or after its start.
func (c *command) exit(container string, code int) { c.t.Helper(); c.tell(container, fmt.Sprint(code)) }

// listen waits for a line from a pipe.
func (c *command) listen(fifo string) string {
	c.t.Helper()
	require.Contains(c.t, c.fifos, fifo)
	f := c.fifos[fifo]
	require.NoError(c.t, f.SetReadDeadline(time.Now().Add(patience)))
	var line []byte
	for b := make([]byte, 1); ; {
		_, err := f.Read(b)
		require.NoError(c.t, err, "of %s", fifo)
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

func (c *command) signal(s os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// signalUntilEnd ends the command with a second signal. One that comes soon after the
// first one does not count.
func (c *command) signalUntilEnd(s os.Signal) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return errors.Is(c.cmd.Process.Signal(s), os.ErrProcessDone) }, patience, 50*time.Millisecond)
}

// event returns the next event, or false at the end.
func (c *command) event() (printer.Event, bool) {
	c.t.Helper()
	select {
	case e, ok := <-c.events:
		return e, ok
	case <-time.After(patience):
		require.FailNow(c.t, "nothing more comes")
		return printer.Event{}, false
	}
}

// next returns a line for the next event that has one. Instead of times it has the
// number of the instance, and the length of a wait from the exit. After a start, next
// also waits until the container is ready, if that writes to NAME.ready.
func (c *command) next() string {
	c.t.Helper()
	for {
		e, ok := c.event()
		if !ok {
			return "end"
		}
		if e.Reason == "Created" {
			c.created[e.Pod+"/"+e.Container] = true
			continue // Started or Failed follows.
		}
		if e.Reason == printer.ReasonStillRunning {
			continue // Only on a slow machine, or if the test waits for it.
		}
		if e.Reason == "Unhealthy" && strings.HasSuffix(e.Message, "the container is not running") {
			continue // Whether a probe runs during the exit is open.
		}
		if line := c.line(e); line != "" {
			c.seen = append(c.seen, line)
			return line
		}
	}
}

func (c *command) line(e printer.Event) string {
	c.t.Helper()
	label := e.Container
	if label == "" {
		label = "pod"
	}
	if e.Pod == "" {
		label = "run"
	} else if other, _ := strings.CutPrefix(e.Pod, "default/"); other != c.pod.Name {
		label = other + "/" + label
	}
	text := strings.NewReplacer(c.pod.Name, "POD", c.root, "ROOT").Replace(strings.TrimSpace(e.Message))
	text, _, _ = strings.Cut(text, ", next start at ")
	switch {
	case e.Summary != nil && e.Container != "":
		c.summary += fmt.Sprintf(" %s=%d", e.Container, e.Summary.Restarts)
		return ""
	case e.Summary != nil:
		line := fmt.Sprintf("%s %s restarts=%d%s", label, e.Phase, e.Summary.Restarts, c.summary)
		c.summary = ""
		return line
	case e.ExitCode != nil:
		c.exits[label] = e.FinishedAt
		line := fmt.Sprintf("%s#%d exited(%d)", label, *e.RestartCount+1, *e.ExitCode)
		if text != fmt.Sprintf("exited with code %d", *e.ExitCode) || (e.Reason != "Completed") != (*e.ExitCode != 0) {
			line += " " + e.Reason + ": " + text
		}
		return line
	case !e.RetryAt.IsZero():
		exit, ok := c.exits[label]
		if e.Container == "" {
			exit, ok = c.exits[c.trigger]
		}
		require.True(c.t, ok, "%+v without an exit", e)
		// The wall clock and the monotonic clock differ a little.
		return fmt.Sprintf("%s waits %v", label, e.RetryAt.Sub(exit).Round(time.Millisecond))
	case e.Reason == "Started":
		require.True(c.t, c.created[e.Pod+"/"+e.Container], "%+v without Created", e)
		delete(c.created, e.Pod+"/"+e.Container)
		c.starts[label]++
		if c.fifos[label+".ready"] != nil {
			c.listen(label + ".ready")
		}
		return fmt.Sprintf("%s#%d running", label, c.starts[label])
	case e.Reason == string(restartpod.PodRestarting):
		c.trigger = strings.Fields(e.Message)[1]
	}
	return strings.TrimSuffix(label+" "+e.Reason+": "+text, ": ")
}

// expect does and expects the lines of a text:
//
//	> FIFO TEXT  writes the text to a pipe, such as the exit code of a container
//	> SIGNAL     sends a signal, such as SIGHUP
//	> interrupt  sends SIGINT as Ctrl-C, and expects the line about it
//	... LINE     waits for a line, whatever comes before it
//	| LINE       is the next line; adjacent lines like this may be in any order
//	# TEXT       is a comment
//	LINE         is the next line
func (c *command) expect(text string) {
	c.t.Helper()
	var unordered, got []string
	for line := range strings.Lines(text + "\n#") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == "|" {
			unordered, got = append(unordered, rest), append(got, c.next())
			continue
		}
		require.ElementsMatch(c.t, unordered, got)
		unordered, got = nil, nil
		switch verb {
		case "", "#":
		case "...":
			c.until(rest)
		case ">":
			fifo, text, _ := strings.Cut(rest, " ")
			if rest == "interrupt" {
				c.signal(os.Interrupt)
				c.expect("run Stopping: interrupt" + stoppingPods)
			} else if s := unix.SignalNum(rest); s != 0 {
				c.signal(s)
			} else {
				c.tell(fifo, text)
			}
		default:
			require.Equal(c.t, strings.TrimSpace(line), c.next())
		}
	}
}

// stoppingPods is the end of the line about the first signal.
const stoppingPods = ": stopping the pods within their grace periods; a second signal kills the remaining processes"

// until waits for a line that begins with these words, and returns all lines up to it.
func (c *command) until(words string) []string {
	c.t.Helper()
	for first := len(c.seen); ; {
		line := c.next()
		if strings.HasPrefix(line+" ", words+" ") {
			return c.seen[first:]
		}
		require.NotEqual(c.t, "end", line, "want %s", words)
	}
}

// ends expects the lines of a text, and then the end with an exit status. Only the logs
// of the pods are left.
func (c *command) ends(status int, text string) {
	c.t.Helper()
	c.expect(text)
	c.expect("end")
	require.Equal(c.t, status, c.wait())
	require.Empty(c.t, c.errors())
	require.Empty(c.t, processesOf(c.pod.Name))
	c.requireOnlyLogs()
}

// wait waits for the end of the process and returns its exit status, or -1 if a signal
// ended it.
func (c *command) wait() int {
	c.t.Helper()
	select {
	case <-c.waited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.FailNow(c.t, "the command does not end")
		return -1
	}
}

// errors returns stderr.
func (c *command) errors() string {
	data, err := os.ReadFile(c.stderr)
	require.NoError(c.t, err)
	return string(data)
}

// dir is the folder of the pod.
func (c *command) dir() string {
	return filepath.Join(c.root, "default_"+c.pod.Name+"_"+string(c.pod.UID))
}

// log returns the output of an instance of a container.
func (c *command) log(container string, restarts int) []string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir(), "logs", container, fmt.Sprintf("%d.log", restarts)))
	require.NoError(c.t, err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)[3])
	}
	return lines
}

// outsideTmp returns a folder that every user can read.
func outsideTmp(t *testing.T) string {
	dir, err := os.MkdirTemp("/var/tmp", "crashloop")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
