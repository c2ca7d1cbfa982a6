// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// loop makes all writes until Close.
func (p *Printer) loop() {
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

// flush writes the pending lines and the table below them in one call. After a failed
// write nothing else is written.
func (p *Printer) flush() {
	columns, rows := 0, 0
	if p.size != nil {
		columns, rows = p.size()
	}
	if columns <= 0 || rows <= 0 {
		columns, rows = 80, 24 // The terminal does not report its size.
	}
	p.mu.Lock()
	if p.leftOut > 0 {
		p.addLocked(nil, Event{Type: v1.EventTypeWarning, Reason: "OutputLeftOut",
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

func (p *Printer) write(out []byte) {
	if len(out) > 0 && p.err == nil {
		p.setWriting(true)
		defer p.setWriting(false)
		defer time.AfterFunc(stallAfter, p.stall).Stop()
		_, p.err = p.w.Write(out)
	}
}

func (p *Printer) setWriting(writing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.stalled = writing, false
}

// stall stops the wait of output for the current write.
func (p *Printer) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = p.writing
	p.room.Broadcast()
}

// Close writes the pending lines, the table, and a summary with the directory of each
// pod's logs. It waits for the writer and returns its first error. Later calls of other
// methods have no effect.
func (p *Printer) Close(logs func(*v1.Pod) string) error {
	p.mu.Lock()
	p.releaseLocked(func(heldLine) bool { return true })
	p.closed = true
	p.room.Broadcast()
	p.mu.Unlock()
	close(p.closing)
	<-p.done
	p.write(p.summary(logs))
	return p.err
}
