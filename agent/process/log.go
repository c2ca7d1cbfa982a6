// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bufio"
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

const (
	// maxLogSize is the default of the kubelet's containerLogMaxSize. rotatedSuffix is
	// the suffix of a log that has reached it.
	maxLogSize    = 10 << 20
	rotatedSuffix = ".1"
	// maxLine is containerd's max_container_log_line_size.
	maxLine = 16 << 10
)

// containerLog writes the output of the instances of a container, one after the other.
type containerLog struct {
	dir    string
	output func(line []byte)
	warn   func(message string)

	// mu guards what follows. It may be held while output blocks.
	mu   sync.Mutex
	path string
	// file is nil after an error. write opens it again.
	file    *os.File
	size    int64
	entry   []byte
	failing bool
}

// begin begins the log of a new instance and removes an old one.
func (l *containerLog) begin(restarts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := func(n int) string { return filepath.Join(l.dir, strconv.Itoa(n)+".log") }
	old := path(restarts - podfiles.MaxLogFiles)
	os.Remove(old)
	os.Remove(old + rotatedSuffix)
	l.path = path(restarts)
	l.warnOnce(l.open())
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
		s, err := newStream(func(r io.Reader) {
			readLines(r, func(line []byte, partial bool) { l.line(name, line, partial) })
		})
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

// line writes a line, or a part of one, in the format of CRI logs.
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
	l.warnOnce(l.write())
	l.output(bytes.Clone(line))
}

// last returns the last line without its time and stream.
func (l *containerLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	fields := bytes.SplitN(bytes.TrimSpace(l.entry), []byte{' '}, 4)
	return string(fields[len(fields)-1])
}

// warnOnce warns of the first of several errors in a row.
func (l *containerLog) warnOnce(err error) {
	if err != nil && !l.failing {
		l.warn("cannot write the log, so it will be incomplete: " + err.Error())
	}
	l.failing = err != nil
}

func (l *containerLog) write() error {
	if l.file != nil && l.size+int64(len(l.entry)) > maxLogSize {
		l.close()
		if err := os.Rename(l.path, l.path+rotatedSuffix); err != nil {
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
	l.file.Close() // A nil *os.File returns an error.
	l.file = nil
}

// readLines reads lines until the end. It splits a line of more than maxLine bytes into
// parts. All parts except the last are partial. A last line without a newline is partial
// too.
func readLines(r io.Reader, line func(line []byte, partial bool)) {
	b := bufio.NewReaderSize(r, maxLine+1)
	for {
		text, err := b.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			b.UnreadByte()
			text = text[:maxLine]
		}
		text, full := bytes.CutSuffix(text, []byte{'\n'})
		if full || len(text) > 0 {
			line(text, !full)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// stream is a pipe that is read until drain is called.
type stream struct {
	reader, writer *os.File
	// rest is the number of bytes left to read after drain was called. Before, it is
	// negative.
	rest int
	done chan struct{}
}

// newStream creates a pipe and calls read in a goroutine. read must read until io.EOF.
func newStream(read func(io.Reader)) (*stream, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stream{reader, writer, -1, make(chan struct{})}
	go func() {
		defer close(s.done)
		read(s)
	}()
	return s, nil
}

// Read implements io.Reader. It returns io.EOF at the end of the pipe, or after the bytes
// that were in the pipe when drain was called.
func (s *stream) Read(p []byte) (int, error) {
	if s.rest < 0 {
		n, err := s.reader.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		s.reader.SetReadDeadline(time.Time{})
		s.rest = 0
		if c, err := s.reader.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { s.rest, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		}
	}
	if s.rest <= 0 {
		return 0, io.EOF
	}
	n, err := s.reader.Read(p[:min(len(p), s.rest)])
	s.rest -= n
	return n, err
}

// drain waits until everything that was written has been read, and closes the pipe. A
// process that keeps the pipe open does not delay it.
func (s *stream) drain() {
	s.writer.Close()
	s.reader.SetReadDeadline(time.Unix(1, 0))
	<-s.done
	s.reader.Close()
}
