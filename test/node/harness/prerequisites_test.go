// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingIsToldAtOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	none, some := "", filepath.Join(t.TempDir(), "kubelet")
	_, err := prerequisites([]Program{{"--stock", &some}, {"--ours", &none}, {"--apiserver", &none}}, Needs{Runtime: DefaultRuntime, APIServer: true})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"--stock: ", "--ours: not given", "--apiserver: not given", "Debian package runc", "Debian package etcd-server"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}
