// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// isolate makes a node of this program, called with the arguments, in its own
// PID and mount namespaces, and in its own network too where the spec says so.
// This is what makes the cleaning up certain: the node is process 1 of
// its PID namespace, and the kernel kills all others in it when it ends, shims
// and containers that have detached themselves included; the mounts go with the
// last process. It works the same when the node is killed, and when the harness
// is: then the node's standard input ends, and so does the node.
func isolate(ctx context.Context, s Spec, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		// A Ctrl-C on the terminal is for the harness alone, which then ends the
		// node as a whole.
		Setpgid: true,
	}
	if s.Network {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a process in new namespaces cannot be started: %w", err)
	}
	if _, err := in.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the node failed: %w", err)
	}
	return nil
}
