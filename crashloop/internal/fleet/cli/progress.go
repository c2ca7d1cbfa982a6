// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows a progress bar if standard error is a terminal.
type progress struct {
	w           io.Writer
	lock        sync.Mutex
	began, last time.Time
}

func newProgress(stderr io.Writer) *progress {
	p := &progress{began: time.Now()}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = f
	}
	return p
}

// note updates the bar. Several goroutines may call it.
func (p *progress) note(done, all int) {
	if p.w == nil {
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if now := time.Now(); now.Sub(p.last) > 100*time.Millisecond {
		p.last = now
		fmt.Fprint(p.w, bar(done, all, now.Sub(p.began)))
	}
}

// end removes the bar.
func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// bar returns the bar as a line for a terminal.
func bar(done, all int, since time.Duration) string {
	const width = 40
	filled := width * done / all
	left := time.Duration(float64(since) * float64(all-done) / float64(done)).Round(time.Second)
	return fmt.Sprintf("\r\x1b[K[%s%s] %d of %d nodes, %v left", strings.Repeat("=", filled), strings.Repeat(" ", width-filled), done, all, left)
}
