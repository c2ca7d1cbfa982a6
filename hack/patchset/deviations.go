// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// deviations prints in Markdown what each patch of the newest series changes in the behaviour of the kubelet, and why,
// as its message says, and what another release's message says that is not the same. The messages are the one place
// where that stands.
func (p *program) deviations(w io.Writer) error {
	all, err := p.loadAll()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no series in %s", p.patches)
	}
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make deviations -->

# How this differs from upstream

What each patch changes, why, which of upstream's tests expected something else, and when the patch can be dropped. To leave
a patch out, comment out its line in patches/RELEASE/series, or name it in SKIP. These are the messages of the patches; what
is left out of a release, and why, is in [results/releases.md](results/releases.md).
`)
	for _, q := range all[0].active {
		// The first is that of the newest series.
		var texts []string
		releases := map[string][]string{}
		for _, s := range all {
			i := slices.IndexFunc(s.active, func(r *patch) bool { return r.name == q.name })
			if i < 0 {
				continue
			}
			m, err := p.message(s.active[i].mail)
			if err != nil {
				return err
			}
			subject, body, _ := strings.Cut(m.text, "\n")
			if len(texts) == 0 {
				fmt.Fprintf(w, "\n## %s: %s\n", q.name, subject)
			}
			text := strings.TrimSpace(body)
			if releases[text] == nil {
				texts = append(texts, text)
			}
			releases[text] = append(releases[text], s.name)
		}
		for _, text := range texts {
			fmt.Fprintf(w, "\nIn %s:\n\n```text\n%s\n```\n", strings.Join(releases[text], ", "), text)
		}
	}
	return nil
}

// page prints a page, or writes it to its file.
func (p *program) page(write bool, file string, print func(io.Writer) error) error {
	if !write {
		return print(p.out)
	}
	var b bytes.Buffer
	if err := print(&b); err != nil {
		return err
	}
	return writeFile(filepath.Join(p.root, file), b.Bytes(), 0o666)
}
