// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

// withoutNamespaces makes the command run as for root in a container: without the
// privilege to make namespaces.
func (c *command) withoutNamespaces() *command {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		c.t.Skip("only root can give up privileges, with setpriv")
	}
	c.cmd.Args = append([]string{setpriv, "--bounding-set=-all", "--inh-caps=-all", executable(c.t)}, c.cmd.Args[1:]...)
	c.cmd.Path = setpriv
	return c
}

const cannotConfine = "warning namespaces: fork/exec /proc/self/exe: operation not permitted: the pods run without namespaces, and can change whatever their user can change"

// issues returns the warnings and errors on stderr.
func (c *command) issues() (list []string) {
	for line := range strings.Lines(c.errors()) {
		var i struct{ Severity, Field, Detail string }
		require.NoError(c.t, json.Unmarshal([]byte(line), &i))
		list = append(list, i.Severity+" "+i.Field+": "+i.Detail)
	}
	return list
}

func TestRunWithoutNamespaces(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, script("main", "test $$ != 1"))}).withoutNamespaces().start().read()
	c.until("end")
	require.Equal(t, exitSucceeded, c.wait())
	require.Equal(t, []string{cannotConfine}, c.issues())

	pod := volume(newPod(never, script("main", "test ! -e /volume-of-a-test", mount("data", "/volume-of-a-test"))), "data")
	c = newCommand(t, []*v1.Pod{pod}).withoutNamespaces().start().read()
	c.until("end")
	require.Equal(t, exitRefused, c.wait())
	require.Equal(t, []string{cannotConfine, "error spec.containers[0].volumeMounts[0]: Forbidden: not available without confinement (--unconfined runs the pod without it)"}, c.issues())
	require.NoDirExists(t, c.dir())
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
	if err := process.CanConfine(); err != nil {
		t.Skip("no namespaces here: ", err)
	}
	pod := newPod(never, script("main", "exit 0"))
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)}
	c := newCommand(t, []*v1.Pod{pod}).start().read()
	c.until("end")
	require.Equal(t, exitRefused, c.wait())
	require.Equal(t, []string{"error spec.containers[0].securityContext.privileged: Forbidden: not available in a confined pod (--unconfined runs the pod without it)"}, c.issues())
}
