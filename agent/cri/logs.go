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
	// maxLine is about the length in bytes at which a longer line is split. Entries of
	// containerd have at most this length.
	maxLine = 16 << 10
	// followPeriod is the time between reads of a log that cannot be watched: each
	// watch uses an inotify instance, and a user often has only 128.
	followPeriod = time.Second
)

// followers pass the lines of all instances to output.
type followers struct {
	runtime criapi.RuntimeService
	output  func(container string, line []byte)
	wg      sync.WaitGroup

	mu sync.Mutex
	// ended has a channel for each instance that has not ended yet, by ID. It is closed
	// at the end.
	ended map[string]chan struct{}
	// read has a channel for each container. It is closed when output has got all lines
	// of the newest instance.
	read map[string]chan struct{}
}

func newFollowers(runtime criapi.RuntimeService, output func(container string, line []byte)) *followers {
	return &followers{runtime: runtime, output: output, ended: map[string]chan struct{}{}, read: map[string]chan struct{}{}}
}

// ids returns the instances that have not ended yet.
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

// finish marks all instances as ended, and waits until output has got all their lines.
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

// follow reads the log of an instance from the time since to its end.
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

// follower is the RuntimeService for ReadLogs, which asks for the status of the
// instance at every turn. It answers without a call of the runtime.
type follower struct {
	criapi.RuntimeService
	ended <-chan struct{}
	// seen counts the entries that were read, and skip those that will be read again.
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

// lines joins the entries of one stream to lines: an entry without a newline continues
// in the next one.
type lines struct {
	ctx      context.Context
	follower *follower
	write    func(line []byte)
	rest     []byte
}

// Write gets one entry.
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
