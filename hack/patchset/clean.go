// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// clean removes _output, never what KB_OUTPUT_DIR names: that directory may hold other things.
func (p *program) clean() error {
	output := filepath.Join(p.root, "_output")
	entries, err := os.ReadDir(output)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := false
	for _, e := range entries {
		dir := filepath.Join(output, e.Name())
		t := &tree{git: p.git(filepath.Join(dir, "kubernetes")), kind: repository}
		work := ""
		if exists(filepath.Join(t.dir, ".git")) {
			work = t.work(e.Name())
		}
		if work == "" {
			removeAll(dir)
			continue
		}
		p.warn("kept, because it has %s: %s", work, t.dir)
		kept = true
		removeAll(filepath.Join(dir, "stock"))
		removeAll(filepath.Join(dir, "kubelet"))
	}
	if !kept {
		removeAll(output)
	}
	return nil
}

// work is what somebody has done in the tree, in words; nothing when there is nothing. All that may go is what the
// release's tag and complete series hold.
func (t *tree) work(version string) string {
	var ours []string
	states, _ := t.lines("config", "--local", "--get-regexp", `^branch\..*\.kubelet-backoff-tip$`)
	for _, line := range states {
		_, commit, _ := strings.Cut(line, " ")
		ours = append(ours, commit)
	}
	changes, err := t.out("status", "--porcelain", "--untracked-files=normal")
	if err == nil && changes != "" {
		return "changes or new files that are not committed"
	}
	// A stash is in --all, a detached HEAD is not.
	commits, err2 := t.out(slices.Concat([]string{"rev-list", "-n1", "--all", "HEAD", "--not", "refs/tags/" + version}, ours)...)
	switch {
	case err != nil || err2 != nil:
		return "contents that git cannot tell"
	case commits != "":
		return "stashes or commits that no patch file holds"
	}
	return ""
}
