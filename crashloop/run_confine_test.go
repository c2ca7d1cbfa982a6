// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// noPrograms is the environment of a machine without bubblewrap.
const noPrograms = "PATH=/no/programs"

// issues returns the warnings and errors on stderr.
func (c *command) issues() (list []string) {
	for line := range strings.Lines(c.errors()) {
		var i struct{ Severity, Field, Detail string }
		require.NoError(c.t, json.Unmarshal([]byte(line), &i))
		list = append(list, i.Severity+" "+i.Field+": "+i.Detail)
	}
	return list
}

// Without the sandbox, nothing runs by itself.
func TestRunWithoutBubblewrap(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, script("main", "exit 0"))})
	c.cmd.Env = append(c.cmd.Env, noPrograms)
	c.start().read()
	c.until("end")
	require.Equal(t, exitRefused, c.wait())
	require.Equal(t, []string{"error sandbox: the program bwrap is not installed; install it with: apt-get install bubblewrap (--unconfined runs the pods without a sandbox: they can do whatever their user can do)"}, c.issues())
	require.NoDirExists(t, c.dir())

	c = newCommand(t, []*v1.Pod{newPod(never, script("main", "exit 0"))}, "--unconfined", "-")
	c.cmd.Env = append(c.cmd.Env, noPrograms)
	c.start().read()
	c.until("end")
	require.Equal(t, exitSucceeded, c.wait())
}

// The second Ctrl-C ends the agent in the middle of probes. Even then no container sees
// its executable.
func TestRunHidesExecutable(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			// ls prints where the links lead; without permission it prints none.
			pod := newPod(never, script("main", onTerm+`echo >$CTL/main.ready; while :; do ls -l /proc/[0-9]*/exe 2>/dev/null | grep -e crashloop -e memfd; done >$CTL/main.hook`))
			pod.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: execProbe("exit 0"), PeriodSeconds: 1, TimeoutSeconds: 1000}
			c := startRun(t, pod)
			c.expect("main#1 running")
			require.NoError(t, c.fifos["main.hook"].SetReadDeadline(time.Now().Add(time.Duration(n)*300*time.Millisecond)))
			c.signal(os.Interrupt)
			c.signalUntilEnd(os.Interrupt)
			require.Equal(t, 130, c.wait())
			read, err := c.fifos["main.hook"].Read(make([]byte, 1000))
			require.Zero(t, read)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}

func TestRunUnconfined(t *testing.T) {
	t.Parallel()
	pod := volume(newPod(never, script("main", "test $$ != 1 && test ! -e /volume-of-a-test && echo >$CTL/written", mount("data", "/volume-of-a-test"))), "data")
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	c := newCommand(t, []*v1.Pod{pod}, "--unconfined", "-").start().read()
	c.until("end")
	require.Equal(t, exitSucceeded, c.wait())
	require.Equal(t, []string{
		"warning spec.containers[0].volumeMounts[0]: not available without confinement",
		"warning spec.containers[0].securityContext.readOnlyRootFilesystem: not available without confinement",
	}, c.issues())
	require.FileExists(t, filepath.Join(c.ctl, "written"))
}

// A confined pod cannot be privileged.
func TestRunRefusesPrivileged(t *testing.T) {
	t.Parallel()
	pod := newPod(never, script("main", "exit 0"))
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)}
	c := newCommand(t, []*v1.Pod{pod}).start().read()
	c.until("end")
	require.Equal(t, exitRefused, c.wait())
	require.Equal(t, []string{"error spec.containers[0].securityContext.privileged: Forbidden: not available in a confined pod (--unconfined runs the pod without it)"}, c.issues())
}
