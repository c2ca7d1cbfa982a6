// SPDX-License-Identifier: Apache-2.0

package harness

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

// isolate runs this program with the arguments as a node, in its own PID and mount
// namespaces, and in its own network namespace if the spec says so. So the cleanup
// is reliable: the node is process 1 of its PID namespace. When it ends, the kernel
// kills all other processes in it, even shims and containers that have detached
// themselves, and the mounts go with the last process. This also works if the node
// is killed, or the harness: then the node's standard input ends, and the node ends.
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
		Cloneflags: syscall.CLONE_NEWNS,
		// Only the harness gets a Ctrl-C of the terminal. It then ends the whole node.
		Setpgid: true,
	}
	if !s.Machine { // systemd would not know the processes of another PID namespace.
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if s.Network {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a process in new namespaces: %w", err)
	}
	if _, err := in.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the node failed: %w", err)
	}
	return nil
}
