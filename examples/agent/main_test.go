// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	v1 "k8s.io/api/core/v1"
)

// The agent runs its pod to the end, as somebody starts it.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAgent(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if lines := strings.Count(string(text), "\n"); err != nil || lines >= 80 {
		t.Errorf("%d lines, README says less than 80 (%v)", lines, err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "AGENT=1")
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "\nSucceeded, ready false, 1 restarts\nSucceeded\n") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// What the pod does not need works too: a stop, and the grace period's end.
func TestStop(t *testing.T) {
	for trap, want := range map[string]int32{"exit 7": 7, "": -1} {
		p := &processes{changed: make(chan struct{}, 1)}
		ready := filepath.Join(t.TempDir(), "ready")
		if err := syscall.Mkfifo(ready, 0o600); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("trap '%s' TERM; echo >'%s'; while :; do sleep 0.01; done", trap, ready)
		id, err := p.Start(t.Context(), &v1.Container{Name: "main", Command: []string{"sh", "-c", script}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(ready); err != nil { // It waits for the trap.
			t.Fatal(err)
		}
		if err := p.Stop(t.Context(), id, 300*time.Millisecond); err != nil {
			t.Error(err)
		}
		var i agent.Instance
		for i.FinishedAt.IsZero() {
			<-p.Changed()
			s, _ := p.State(t.Context())
			i = s.Instances["main"]
		}
		if i.ExitCode != want {
			t.Errorf("%s: %+v", script, i)
		}
		if err := p.Stop(t.Context(), id, 0); err != nil {
			t.Error(err) // It has ended.
		}
	}
}
