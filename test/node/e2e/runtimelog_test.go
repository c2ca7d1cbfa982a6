// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// instance is an instance of a container, as the runtime's log has it. The creation is
// when the runtime answered the request for it, so it is later than the decision to start
// the container and earlier than anything that its program does. An instance that containerd
// created and was killed before it answered has no ID and no times.
type instance struct {
	id              string
	created, exited time.Time
	started         bool
	// outOfMemory is true if containerd logged that the kernel killed the instance for its memory,
	// and late if it did so after the exit.
	outOfMemory, late bool
}

// runtimeLog follows the runtime's log, which keeps the order of events on a busy
// machine, and instances that the kubelet has removed.
var runtimeLog = newInstanceLog()

func newInstanceLog() *instanceLog {
	return &instanceLog{
		sandboxes: map[string]string{}, unanswered: map[string]int{}, losses: map[string]loss{}, requests: map[string]string{}, byID: map[string]*instance{}, of: map[string][]*instance{},
	}
}

// loss is a loss of all instances of a container: the next one has the attempt 0. The status
// manager never lowers a restart count.
type loss struct {
	// instances is the number of instances before the loss, and shown the restart count in the
	// API then. It may be one less if unsure is true: the last instance may not have existed.
	instances, shown int
	unsure           bool
}

type instanceLog struct {
	sync.Mutex
	read int64
	// sandboxes has the UID of the pod of each sandbox of containerd, and unanswered the attempt
	// of the last request for a container, by "UID/container", until containerd answers it.
	sandboxes  map[string]string
	unanswered map[string]int
	// losses has the last loss of all instances of a container, by "UID/container".
	losses map[string]loss
	// requests has the "UID/container" of each request to CRI-O for a container.
	requests map[string]string
	// byID has the instances, and of those of each container in the order of their creation,
	// by "UID/container".
	byID map[string]*instance
	of   map[string][]*instance
}

var (
	logTime       = regexp.MustCompile(`^time="([^"]*)"`)
	sandboxLine   = regexp.MustCompile(`"RunPodSandbox for .*[Uu]id:\W*([\w-]+).* returns sandbox id \W*(\w+)`)
	requestLine   = regexp.MustCompile(`"CreateContainer within sandbox \W*(\w+)\W* for container [Nn]ame:\W*([\w-]+)\W*(?:[Aa]ttempt:\W*(\d+))?`)
	failedLine    = regexp.MustCompile(`"CreateContainer within sandbox \W*(\w+)\W* for .*[Nn]ame:\W*([\w-]+).* failed"`)
	createdLine   = regexp.MustCompile(`"CreateContainer within sandbox \W*(\w+)\W* for .*[Nn]ame:\W*([\w-]+).* returns container id \W*(\w+)`)
	startedLine   = regexp.MustCompile(`"StartContainer for \W*(\w+)\W* returns successfully"`)
	containerExit = regexp.MustCompile(`"received container exit event .*container_id:\W*(\w+).*exited_at:\{seconds:(\d+)(?:\s+nanos:(\d+))?`)
	oomLine       = regexp.MustCompile(`"TaskOOM event container_id:\W*(\w+)`)

	// CRI-O's log has no line with the time of an exit, but each status that the kubelet
	// got.
	crioRequest = regexp.MustCompile(`"Request: \*v1\.CreateContainerRequest: pod_sandbox_id\W+\w+\W+config\W+metadata\W+name\W+([\w-]+).*?labels:\{key\W+io\.kubernetes\.pod\.uid\W+value\W+([\w-]+).* id=(\S+)`)
	crioCreated = regexp.MustCompile(`"Response: \*v1\.CreateContainerResponse: container_id\W+(\w+).* id=(\S+)`)
	crioStarted = regexp.MustCompile(`"Started container".* containerID=(\w+)`)
	crioExit    = regexp.MustCompile(`"Response: \*v1\.ContainerStatusResponse: status\W+id\W+(\w+)[^}]*\}[^{]*\sfinished_at:([1-9]\d*)`)
)

// parse adds lines of the log. It ignores all that are not about containers.
func (l *instanceLog) parse(text []byte) error {
	for line := range bytes.Lines(text) {
		if m := sandboxLine.FindSubmatch(line); m != nil {
			l.sandboxes[string(m[2])] = string(m[1])
		} else if m := createdLine.FindSubmatch(line); m != nil {
			of := l.container(m)
			delete(l.unanswered, of)
			if err := l.create(line, string(m[3]), of); err != nil {
				return err
			}
		} else if m := failedLine.FindSubmatch(line); m != nil {
			delete(l.unanswered, l.container(m))
		} else if m := requestLine.FindSubmatch(line); m != nil {
			of := l.container(m)
			attempt, _ := strconv.Atoi(string(m[3])) // The log leaves out 0.
			// The kubelet repeats a request with the same attempt unless there is an instance.
			last, ok := l.unanswered[of]
			if ok && last < attempt {
				l.of[of] = append(l.of[of], &instance{})
			}
			if n := len(l.of[of]); attempt == 0 && n > 0 && (!ok || last > 0) {
				shown := max(l.shown(of)[0], last)
				l.losses[of] = loss{instances: n, shown: shown, unsure: ok}
			}
			l.unanswered[of] = attempt
		} else if m := crioRequest.FindSubmatch(line); m != nil {
			l.requests[string(m[3])] = string(m[2]) + "/" + string(m[1])
		} else if m := crioCreated.FindSubmatch(line); m != nil {
			if err := l.create(line, string(m[1]), l.requests[string(m[2])]); err != nil {
				return err
			}
		} else if m := startedLine.FindSubmatch(line); m != nil {
			if i := l.byID[string(m[1])]; i != nil {
				i.started = true
			}
		} else if m := crioStarted.FindSubmatch(line); m != nil {
			if i := l.byID[string(m[1])]; i != nil {
				i.started = true
			}
		} else if m := crioExit.FindSubmatch(line); m != nil {
			nanos, err := strconv.ParseInt(string(m[2]), 10, 64)
			if err != nil {
				return err
			}
			// CRI-O changes the time when it removes the container.
			if i := l.byID[string(m[1])]; i != nil && i.exited.IsZero() {
				i.exited = time.Unix(0, nanos)
			}
		} else if m := oomLine.FindSubmatch(line); m != nil {
			if i := l.byID[string(m[1])]; i != nil {
				i.outOfMemory, i.late = true, !i.exited.IsZero()
			}
		} else if m := containerExit.FindSubmatch(line); m != nil {
			seconds, err := strconv.ParseInt(string(m[2]), 10, 64)
			if err != nil {
				return err
			}
			// No nanos are zero.
			nanos, _ := strconv.ParseInt(string(m[3]), 10, 64)
			if i := l.byID[string(m[1])]; i != nil {
				i.exited = time.Unix(seconds, nanos)
			}
		}
	}
	return nil
}

// shown returns the restart counts of a container that the API may show.
func (l *instanceLog) shown(of string) []int {
	loss := l.losses[of]
	count := len(l.of[of]) - loss.instances - 1
	if loss.unsure {
		return []int{max(count, loss.shown), max(count, loss.shown-1)}
	}
	return []int{max(count, loss.shown)}
}

// container returns the "UID/container" of a line of containerd that begins with the sandbox and
// the name.
func (l *instanceLog) container(m [][]byte) string {
	return l.sandboxes[string(m[1])] + "/" + string(m[2])
}

// create adds an instance whose creation is in a line of the log.
func (l *instanceLog) create(line []byte, id, of string) error {
	at, err := time.Parse(time.RFC3339Nano, string(logTime.FindSubmatch(line)[1]))
	if err != nil {
		return err
	}
	i := &instance{id: id, created: at}
	l.byID[id] = i
	l.of[of] = append(l.of[of], i)
	return nil
}

// follow reads what has been added to the log.
func (l *instanceLog) follow(path string) error {
	log, err := os.Open(path)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(l.read, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(log)
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	l.read += int64(len(text))
	return l.parse(text)
}

// instance waits until the runtime has started the n-th instance of a container, counted
// from 1, and returns it. If it must have ended, instance also waits for that.
func (p *pod) instance(name string, n int, ended bool) (found instance) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("instance %d of %s of pod %s in the runtime's log", n, name, p.name), patience, func(context.Context) error {
		runtimeLog.Lock()
		defer runtimeLog.Unlock()
		if err := runtimeLog.follow(filepath.Join(p.Spec.Logs, "runtime.log")); err != nil {
			return err
		}
		started := 0
		for _, i := range runtimeLog.of[string(p.uid)+"/"+name] {
			if i.started {
				started++
			}
			if started == n {
				if found = *i; ended && found.exited.IsZero() {
					return errors.New("it has not ended")
				}
				return nil
			}
		}
		return fmt.Errorf("there are %d", started)
	}))
	return found
}

// runtimeID returns the ID of a container in the runtime, from that in the API, which begins with
// the runtime's name.
func runtimeID(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// created returns how many instances of a container the runtime has created, the restart counts
// that the API may show, and the ID of the newest instance.
func (p *pod) created(name string) (n int, shown []int, newest string, err error) {
	runtimeLog.Lock()
	defer runtimeLog.Unlock()
	err = runtimeLog.follow(filepath.Join(p.Spec.Logs, "runtime.log"))
	of := string(p.uid) + "/" + name
	all := runtimeLog.of[of]
	if n = len(all); n > 0 {
		newest = all[n-1].id
	}
	return n, runtimeLog.shown(of), newest, err
}

// exited returns the time at which the n-th instance of a container ended.
func (p *pod) exited(name string, n int) time.Time {
	p.t.Helper()
	return p.instance(name, n, true).exited
}

// assertWaited checks that the instance after the n-th one of a container was created no
// earlier than a delay after the n-th one's exit.
func (p *pod) assertWaited(name string, n int, delay time.Duration) {
	p.t.Helper()
	waited := p.instance(name, n+1, false).created.Sub(p.exited(name, n))
	assert.GreaterOrEqual(p.t, waited, delay, "pod %s: how long restart %d of %s waited", p.name, n, name)
}

// Of two creations without an answer, only that of attempt 1 has left an instance: the next
// request has another attempt. Attempt 3 was requested thrice.
func TestInstanceLog(t *testing.T) {
	const lines = `time="2026-01-01T00:00:00Z" msg="RunPodSandbox for name:\"p\" uid:\"u\" namespace:\"default\" returns sandbox id \"box\""
time="2026-01-01T00:00:01Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\""
time="2026-01-01T00:00:01Z" msg="CreateContainer within sandbox \"box\" for name:\"main\" returns container id \"a\""
time="2026-01-01T00:00:02Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\"  attempt:1"
time="2026-01-01T00:00:03Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\" attempt:2"
time="2026-01-01T00:00:03Z" msg="CreateContainer within sandbox \"box\" for name:\"main\" attempt:2 returns container id \"c\""
time="2026-01-01T00:00:04Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\" attempt:3"
time="2026-01-01T00:00:05Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\" attempt:3"
time="2026-01-01T00:00:05Z" msg="CreateContainer within sandbox \"box\" for name:\"main\" attempt:3 failed" error="canceled"
time="2026-01-01T00:00:06Z" msg="CreateContainer within sandbox \"box\" for container name:\"main\" attempt:3"
time="2026-01-01T00:00:06Z" msg="CreateContainer within sandbox \"box\" for name:\"main\" attempt:3 returns container id \"d\""
time="2026-01-01T00:00:06Z" msg="TaskOOM event container_id:\"c\""
time="2026-01-01T00:00:06Z" msg="received container exit event container_id:\"c\" exited_at:{seconds:6}"
time="2026-01-01T00:00:06Z" msg="received container exit event container_id:\"d\" exited_at:{seconds:6}"
time="2026-01-01T00:00:07Z" msg="TaskOOM event container_id:\"d\""
`
	l := newInstanceLog()
	require.NoError(t, l.parse([]byte(lines)))
	var ids []string
	for _, i := range l.of["u/main"] {
		ids = append(ids, i.id)
	}
	require.Equal(t, []string{"a", "", "c", "d"}, ids)
	for id, want := range map[string][]bool{"a": {false, false}, "c": {true, false}, "d": {true, true}} {
		require.Equal(t, want, []bool{l.byID[id].outOfMemory, l.byID[id].late}, "memory of instance %s", id)
	}
	require.Empty(t, l.unanswered)
}

// All instances are lost while attempt 2 is created, and then again. The count in the API stays until
// there are more restarts since.
func TestInstanceLogAfterLoss(t *testing.T) {
	l := newInstanceLog()
	add := func(attempt int, id string) {
		t.Helper()
		line := `time="2026-01-01T00:00:01Z" msg="CreateContainer within sandbox \"box\" for `
		require.NoError(t, l.parse(fmt.Appendf(nil, "%scontainer name:\"main\" attempt:%d\"\n", line, attempt)))
		if id != "" {
			require.NoError(t, l.parse(fmt.Appendf(nil, "%sname:\"main\" attempt:%d returns container id \"%s\"\n", line, attempt, id)))
		}
	}
	require.Equal(t, []int{0}, func() []int { add(0, "a"); return l.shown("/main") }())
	add(1, "b")
	require.Equal(t, []int{1}, l.shown("/main"))
	add(2, "")
	for i, want := range [][]int{{2, 1}, {2, 1}, {2, 2}, {3, 3}} {
		add(i, fmt.Sprint("c", i))
		require.Equal(t, want, l.shown("/main"))
	}
	add(0, "d")
	require.Equal(t, []int{3}, l.shown("/main"))
	for i := range 4 {
		add(i+1, fmt.Sprint("e", i))
	}
	require.Equal(t, []int{4}, l.shown("/main"))
}

// The arguments and annotations of a container may look like fields of the log.
func TestInstanceLogOfCRIO(t *testing.T) {
	const lines = `time="2026-01-01T00:00:01Z" level=debug msg="Request: *v1.CreateContainerRequest: pod_sandbox_id:\"box\"  config:{metadata:{name:\"main\"}  args:\"io.kubernetes.container.name value other\"  labels:{key:\"io.kubernetes.container.name\"  value:\"main\"}  labels:{key:\"io.kubernetes.pod.uid\"  value:\"u\"}}" file="interceptors.go:65" id=r1 name=/runtime.v1.RuntimeService/CreateContainer
time="2026-01-01T00:00:02Z" level=debug msg="Response: *v1.CreateContainerResponse: container_id:\"a\"" file="interceptors.go:77" id=r1 name=/runtime.v1.RuntimeService/CreateContainer
time="2026-01-01T00:00:03Z" level=info msg="Started container" PID=7 containerID=a description=default/p/main id=r2 name=/runtime.v1.RuntimeService/StartContainer sandboxID=box
time="2026-01-01T00:00:04Z" level=debug msg="Response: *v1.ContainerStatusResponse: status:{id:\"a\"  metadata:{name:\"main\"}  state:CONTAINER_RUNNING  created_at:2  started_at:3  image:{image:\"i\"}  annotations:{key:\"k\"  value:\" finished_at:9\"}}" file="interceptors.go:77" id=r3
`
	l := newInstanceLog()
	require.NoError(t, l.parse([]byte(lines)))
	created := instance{id: "a", created: time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC), started: true}
	require.Equal(t, []*instance{&created}, l.of["u/main"])
	const exited = `time="2026-01-01T00:00:05Z" level=debug msg="Response: *v1.ContainerStatusResponse: status:{id:\"a\"  metadata:{name:\"main\"}  state:CONTAINER_EXITED  created_at:2  started_at:3  finished_at:%d  exit_code:3  image:{image:\"i\"}}" file="interceptors.go:77" id=r4
`
	for _, nanos := range []int{4, 5} {
		require.NoError(t, l.parse(fmt.Appendf(nil, exited, nanos)))
	}
	created.exited = time.Unix(0, 4)
	require.Equal(t, []*instance{&created}, l.of["u/main"])
}
