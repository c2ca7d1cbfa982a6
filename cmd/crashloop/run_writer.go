// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

// loop is the one that writes.
func (p *printer) loop() {
	defer close(p.done)
	var tick <-chan time.Time
	if p.size != nil {
		ticker := p.clock.NewTicker(time.Second)
		defer ticker.Stop()
		tick = ticker.C()
	}
	for {
		select {
		case <-p.wake:
		case <-tick:
		case <-p.closing:
			p.flush()
			return
		}
		p.flush()
		if p.size == nil {
			continue
		}
		select {
		case <-p.clock.After(redrawPause):
		case <-p.full:
		case <-p.closing:
		}
	}
}

// flush writes all that is queued, with one call, and the table as it is now
// below it. What the writer does not take is lost, and so is all after it.
func (p *printer) flush() {
	columns, rows := 0, 0
	if p.size != nil {
		columns, rows = p.size()
	}
	if columns <= 0 || rows <= 0 {
		columns, rows = 80, 24 // As terminals are that do not tell.
	}
	p.mu.Lock()
	if p.away {
		p.mu.Unlock()
		return
	}
	if p.left {
		p.left, p.screen.drawn = false, nil
	}
	if p.leftOut > 0 {
		p.addLocked(nil, runEvent{Type: v1.EventTypeWarning, Reason: "OutputLeftOut",
			Message: fmt.Sprintf("%d lines of output were not read in time; they are in the logs", p.leftOut)})
		p.leftOut = 0
	}
	out := p.pending
	p.pending, p.queuedOutput = nil, 0
	p.room.Broadcast()
	var table []string
	if p.size != nil {
		table = p.table(p.clock.Now(), columns, rows)
	}
	p.mu.Unlock()
	if p.size != nil {
		out = p.screen.draw(out, table, columns)
	}
	p.write(out)
}

func (p *printer) write(out []byte) {
	if len(out) > 0 && p.err == nil {
		p.setWriting(true)
		defer p.setWriting(false)
		defer time.AfterFunc(stallAfter, p.stall).Stop()
		if _, p.err = p.w.Write(out); errors.Is(p.err, syscall.EPIPE) {
			close(p.unread)
		}
	}
}

func (p *printer) setWriting(writing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.stalled = writing, false
}

// stall ends the wait of output for the present write.
func (p *printer) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = p.writing
	p.room.Broadcast()
}

// close writes what is still queued, the table a last time, and the summary with
// the folder of each pod's logs. It waits for the writer, and returns the first
// error of that. What a printer is told afterwards is passed over.
func (p *printer) close(logs func(*v1.Pod) string) error {
	p.mu.Lock()
	p.releaseLocked(func(heldLine) bool { return true })
	p.closed, p.away = true, false
	p.room.Broadcast()
	p.mu.Unlock()
	close(p.closing)
	<-p.done
	p.write(p.summary(logs))
	return p.err
}
