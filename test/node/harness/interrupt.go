// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Progress writes a line about the progress to standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// Interruptible returns a context that ends at Ctrl-C and SIGTERM. It also ends when
// the "go run" that started the harness ends, because go run does not forward SIGTERM.
func Interruptible() (context.Context, context.CancelFunc) {
	ctx, fail := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(parent), "comm"))
	goRun := strings.TrimSpace(string(name)) == "go"
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case s := <-signals:
				Progress("%v: cleaning up", s)
				fail(fmt.Errorf("interrupted by %v", s))
			case <-tick.C:
				if goRun && os.Getppid() != parent && ctx.Err() == nil {
					Progress("go run has ended: cleaning up")
					fail(errors.New("go run has ended"))
				}
			}
		}
	}()
	return ctx, func() { fail(nil) }
}

// cause returns why the context ended, or err if it has not.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// Exit ends the program if err is not nil: with 2 if the user asked for help, and
// otherwise with 1 and a message that begins with the program's name.
func Exit(program string, err error) {
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}
