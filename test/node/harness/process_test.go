// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAwait(t *testing.T) {
	calls := 0
	if err := Await(t.Context(), "the third call", time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || calls != 3 {
		t.Errorf("Await = %v after %d calls, want success after 3", err, calls)
	}
	err := Await(t.Context(), "a thing", time.Millisecond, func(context.Context) error { return errors.New("it is raining") })
	if err == nil || !strings.Contains(err.Error(), "waited 1ms for a thing: it is raining") {
		t.Errorf("Await past its limit = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if err := Await(ctx, "a thing", time.Minute, func(context.Context) error { return errors.New("no") }); err == nil || err.Error() != "interrupted" {
		t.Errorf("Await with an ended context = %v, want its cause", err)
	}
}

// A program that ends unexpectedly ends the run, and the error has the reason.
func TestSupervisorReportsTheLog(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := &supervisor{ctx: ctx, fail: fail, logs: t.TempDir()}
	if _, err := s.Start("thing", "/bin/sh", "-c", "echo out of luck; exit 3"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := context.Cause(ctx).Error(); !strings.Contains(got, "thing ended unexpectedly: exit status 3") || !strings.Contains(got, "out of luck") {
		t.Errorf("cause = %q", got)
	}
}

func TestSupervisorEnds(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := &supervisor{ctx: ctx, fail: fail, logs: t.TempDir()}
	p, err := s.Start("thing", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	p.End()
	if err := context.Cause(ctx); err != nil {
		t.Errorf("a program that was told to end counts as failed: %v", err)
	}
}

// Two kubelets that start at the same time must not get the same port.
func TestFreePortReturnsNoPortTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 2000 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, seen[port], port)
		seen[port] = true
	}
}
