// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

// The kubelet's containerLogMaxSize, what is added to the name of a log that has
// reached it, and the longest line of a log, which is containerd's
// max_container_log_line_size.
const (
	maxLogSize = 10 << 20
	before     = ".1"
	maxLine    = 16 << 10
)

// containerLog is the output of all instances of a container, one after the
// other.
type containerLog struct {
	dir    string
	output func(line []byte)
	warn   func(message string)

	// mu guards what follows. Who holds it may wait in output.
	mu   sync.Mutex
	path string
	// file is nil after an error, so that the next line tries again.
	file    *os.File
	size    int64
	entry   []byte
	failing bool
}

// begin makes the log one of a new instance, and removes that of an old one.
func (l *containerLog) begin(restarts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := func(n int) string { return filepath.Join(l.dir, strconv.Itoa(n)+".log") }
	old := path(restarts - podfiles.MaxLogFiles)
	os.Remove(old)
	os.Remove(old + before)
	l.path = path(restarts)
	l.tell(l.open())
}

// end closes the file until the next instance begins.
func (l *containerLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
}

// streams returns the pipes for an instance's stdout and stderr.
func (l *containerLog) streams() ([]*stream, error) {
	var streams []*stream
	for _, name := range []string{"stdout", "stderr"} {
		s, err := newStream(&lineSplitter{line: func(line []byte, partial bool) { l.line(name, line, partial) }})
		if err != nil {
			for _, s := range streams {
				s.drain()
			}
			return nil, err
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// line gets a line, or a part of one.
func (l *containerLog) line(stream string, line []byte, partial bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tag := " F "
	if partial {
		tag = " P "
	}
	l.entry = time.Now().AppendFormat(l.entry[:0], time.RFC3339Nano)
	l.entry = append(append(append(l.entry, ' '), stream...), tag...)
	l.entry = append(append(l.entry, line...), '\n')
	l.tell(l.write())
	l.output(bytes.Clone(line))
}

// tell warns of the first error of several in a row.
func (l *containerLog) tell(err error) {
	if err != nil && !l.failing {
		l.warn("the log cannot be written, lines will be missing there: " + err.Error())
	}
	l.failing = err != nil
}

func (l *containerLog) write() error {
	if l.file != nil && l.size+int64(len(l.entry)) > maxLogSize {
		l.close()
		if err := os.Rename(l.path, l.path+before); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(l.entry)
	if l.size += int64(n); err != nil {
		l.close()
	}
	return err
}

func (l *containerLog) open() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	l.file = f
	l.size, err = f.Seek(0, io.SeekEnd)
	return err
}

func (l *containerLog) close() {
	l.file.Close() // nil has a Close that only returns an error
	l.file = nil
}

// lineSplitter makes lines of what a stream brings.
type lineSplitter struct {
	line func(line []byte, partial bool)
	rest []byte
}

// Write never fails. A line that is longer than maxLine becomes several.
func (s *lineSplitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		ends := i >= 0
		if !ends {
			i = len(p)
		}
		if free := maxLine - len(s.rest); i > free {
			i, ends = free, false
		}
		s.rest, p = append(s.rest, p[:i]...), p[i:]
		switch {
		case ends:
			p = p[1:]
			s.flush(false)
		case len(p) > 0: // It goes on after maxLine.
			s.flush(true)
		}
	}
	return n, nil
}

// Close is for the end, with a newline before it or not.
func (s *lineSplitter) Close() error {
	if len(s.rest) > 0 {
		s.flush(true)
	}
	return nil
}

func (s *lineSplitter) flush(partial bool) {
	s.line(s.rest, partial)
	s.rest = s.rest[:0]
}

// stream is a pipe that is read until its end, or until drain.
type stream struct {
	reader, writer *os.File
	done           chan struct{}
}

// newStream begins to read what is written to the pipe into w, which is closed
// at the end. w must not fail.
func newStream(w io.WriteCloser) (*stream, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stream{reader, writer, make(chan struct{})}
	go func() {
		defer close(s.done)
		defer w.Close()
		if _, err := io.Copy(w, reader); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		// drain was called. Nobody else reads, and so the rest is there at once.
		reader.SetReadDeadline(time.Time{})
		rest := 0
		if c, err := reader.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { rest, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		}
		io.CopyN(w, reader, int64(rest))
	}()
	return s, nil
}

// drain closes the pipe when all that was written has been read. A process that
// keeps it open does not delay that.
func (s *stream) drain() {
	s.writer.Close()
	s.reader.SetReadDeadline(time.Unix(1, 0))
	<-s.done
	s.reader.Close()
}

// boundedBuffer keeps the beginning of what is written to it.
type boundedBuffer struct {
	bytes []byte
	max   int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p[:min(len(p), b.max-len(b.bytes))]...)
	return len(p), nil
}

func (b *boundedBuffer) Close() error { return nil }
