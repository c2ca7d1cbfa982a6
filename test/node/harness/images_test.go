// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestPack(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "crasher")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	i := images[0]
	if err := i.pack(program, i.archive(dir)); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(i.archive(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Entrypoint; len(got) != 1 || got[0] != "/crasher" || config.OS != "linux" || config.Architecture == "" {
		t.Errorf("config = %+v", config)
	}
	files := tar.NewReader(mutate.Extract(image))
	header, err := files.Next()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(files)
	if err != nil || header.Name != "crasher" || header.Mode != 0o755 || string(content) != "program" {
		t.Errorf("%s, mode %o: %q, %v", header.Name, header.Mode, content, err)
	}
}
