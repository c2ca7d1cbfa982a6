// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
)

const (
	// maxLine is the length in bytes at which a line is split. It is the maximum length
	// of containerd's log entries.
	maxLine = 16 << 10
	// followPeriod is the time between reads of a log that cannot be watched. Each watch
	// uses an inotify instance, and the limit per user is often 128.
	followPeriod = time.Second
)

// followers passes the lines of all instances to output.
type followers struct {
	runtime criapi.RuntimeService
	output  func(container string, line []byte)
	wg      sync.WaitGroup

	mu sync.Mutex
	// ended maps the IDs of the instances that have not ended to channels that are closed
	// when they end.
	ended map[string]chan struct{}
	// read maps each container to a channel that is closed when output was called with
	// all lines of the newest instance.
	read map[string]chan struct{}
}

func newFollowers(runtime criapi.RuntimeService, output func(container string, line []byte)) *followers {
	return &followers{runtime: runtime, output: output, ended: map[string]chan struct{}{}, read: map[string]chan struct{}{}}
}

// ids returns the instances that have not ended.
func (f *followers) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.ended))
}

// end marks an instance as ended. The rest of its log is still read.
func (f *followers) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ended, ok := f.ended[id]; ok {
		close(ended)
		delete(f.ended, id)
	}
}

// finish marks all instances as ended, and waits until output was called with all their
// lines.
func (f *followers) finish(ctx context.Context) error {
	for _, id := range f.ids() {
		f.end(id)
	}
	done := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow starts to read the log of an instance, from the time since to the end of the
// instance.
func (f *followers) follow(ctx context.Context, id, container, path string, since time.Time) {
	ended, read := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	before := f.read[container]
	f.ended[id], f.read[container] = ended, read
	f.mu.Unlock()
	l := &follower{RuntimeService: f.runtime, ended: ended}
	stdout := &lines{ctx: ctx, follower: l, write: func(line []byte) { f.output(container, line) }}
	stderr := &lines{ctx: ctx, follower: l, write: stdout.write}
	f.wg.Go(func() {
		defer close(read)
		if before != nil {
			<-before
		}
		for ctx.Err() == nil {
			l.skip = l.seen
			last := l.hasEnded()
			err := logs.ReadLogs(ctx, path, id, &logs.LogOptions{Follow: !last, Since: since}, l, stdout, stderr)
			if last || err == nil {
				break
			}
			select {
			case <-ctx.Done():
			case <-ended:
			case <-time.After(followPeriod):
			}
		}
		stdout.flush()
		stderr.flush()
	})
}

// follower is the RuntimeService for ReadLogs, which often asks for the status of the
// instance. It answers without a call of the runtime.
type follower struct {
	criapi.RuntimeService
	ended <-chan struct{}
	// seen counts the entries that were read. skip counts those of them that will be read
	// again.
	seen, skip int
}

func (l *follower) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *follower) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	s := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if l.hasEnded() {
		s.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ContainerStatusResponse{Status: s}, nil
}

// lines joins the entries of one stream into lines. The line of an entry without a newline
// continues in the next entry.
type lines struct {
	ctx      context.Context
	follower *follower
	write    func(line []byte)
	rest     []byte
}

// Write implements io.Writer. ReadLogs calls it once per entry.
func (l *lines) Write(entry []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.follower.skip > 0 {
		l.follower.skip--
		return len(entry), nil
	}
	l.follower.seen++
	line, whole := bytes.CutSuffix(entry, []byte("\n"))
	l.rest = append(l.rest, line...)
	if whole || len(l.rest) >= maxLine {
		l.write(l.rest)
		l.rest = nil // output may keep the line.
	}
	return len(entry), nil
}

// flush writes an incomplete last line.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.write(l.rest)
	}
}
