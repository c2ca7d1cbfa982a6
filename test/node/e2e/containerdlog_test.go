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
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// instance is an instance of a container, as containerd's log has it. The creation is
// when containerd answered the request for it, so it is later than the decision to start
// the container and earlier than anything that its program does.
type instance struct {
	created, exited time.Time
	started         bool
}

// containerdLog follows containerd's log, which keeps the order of events on a busy
// machine, and instances that the kubelet has removed.
var containerdLog = instanceLog{sandboxes: map[string]string{}, byID: map[string]*instance{}, of: map[string][]*instance{}}

type instanceLog struct {
	sync.Mutex
	read int64
	// sandboxes has the UID of the pod of each sandbox, byID has the instances, and of
	// those of each container in the order of their creation, by "UID/container".
	sandboxes map[string]string
	byID      map[string]*instance
	of        map[string][]*instance
}

var (
	logTime       = regexp.MustCompile(`^time="([^"]*)"`)
	sandboxLine   = regexp.MustCompile(`"RunPodSandbox for .*[Uu]id:\W*([\w-]+).* returns sandbox id \W*(\w+)`)
	createdLine   = regexp.MustCompile(`"CreateContainer within sandbox \W*(\w+)\W* for .*[Nn]ame:\W*([\w-]+).* returns container id \W*(\w+)`)
	startedLine   = regexp.MustCompile(`"StartContainer for \W*(\w+)\W* returns successfully"`)
	containerExit = regexp.MustCompile(`"received container exit event .*container_id:\W*(\w+).*exited_at:\{seconds:(\d+)(?:\s+nanos:(\d+))?`)
)

// parse adds lines of the log. It ignores all that are not about containers.
func (l *instanceLog) parse(text []byte) error {
	for line := range bytes.Lines(text) {
		if m := sandboxLine.FindSubmatch(line); m != nil {
			l.sandboxes[string(m[2])] = string(m[1])
		} else if m := createdLine.FindSubmatch(line); m != nil {
			at, err := time.Parse(time.RFC3339Nano, string(logTime.FindSubmatch(line)[1]))
			if err != nil {
				return err
			}
			i, of := &instance{created: at}, l.sandboxes[string(m[1])]+"/"+string(m[2])
			l.byID[string(m[3])] = i
			l.of[of] = append(l.of[of], i)
		} else if m := startedLine.FindSubmatch(line); m != nil {
			if i := l.byID[string(m[1])]; i != nil {
				i.started = true
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

// instance waits until containerd has started the n-th instance of a container, counted
// from 1, and returns it. If it must have ended, instance also waits for that.
func (p *pod) instance(name string, n int, ended bool) (found instance) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("instance %d of %s of pod %s in containerd's log", n, name, p.name), patience, func(context.Context) error {
		containerdLog.Lock()
		defer containerdLog.Unlock()
		if err := containerdLog.follow(filepath.Join(p.Spec.Logs, "containerd.log")); err != nil {
			return err
		}
		started := 0
		for _, i := range containerdLog.of[string(p.uid)+"/"+name] {
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
