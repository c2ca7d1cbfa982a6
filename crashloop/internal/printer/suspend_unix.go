// SPDX-License-Identifier: Apache-2.0

//go:build unix

package printer

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// HandleSuspend handles Ctrl-Z and fg, so that the table does not overwrite the output of
// the user's shell. It returns a function that stops the handling.
func (p *Printer) HandleSuspend() (end func()) {
	if p.size == nil {
		return func() {}
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTSTP, unix.SIGCONT)
	go func() {
		for s := range signals {
			p.leave(s == unix.SIGTSTP)
			if s == unix.SIGTSTP {
				unix.Kill(unix.Getpid(), unix.SIGSTOP)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
