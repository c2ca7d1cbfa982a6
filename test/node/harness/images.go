// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images of every node. Their programs are in the folder images.
const (
	CrasherImage = "localhost/kubelet-backoff/crasher:test"
	ActorImage   = "localhost/kubelet-backoff/actor:test"
	pauseImage   = "localhost/kubelet-backoff/pause:test"
)

// Image is an image with static programs. It has other files only with System.
type Image struct {
	// Program is the name of the program in the root folder, and Reference the name
	// of the image.
	Program, Reference string
	// Links are links in /bin to the program, or with Busybox to busybox. The program
	// behaves as its name says.
	Links []string
	// Busybox is the path of a busybox to add.
	Busybox string
	// Files are in the root folder, by name.
	Files map[string][]byte
	// System adds the users and folders that programs expect.
	System bool
	// User and Command are the user and the command of the image's configuration. A
	// Shell runs only the command, without the program.
	User    string
	Command []string
	Shell   bool
}

var (
	actorImage   = Image{Program: "actor", Reference: ActorImage}
	crasherImage = Image{Program: "crasher", Reference: CrasherImage}
	images       = []Image{
		crasherImage,
		actorImage,
		{Program: "pause", Reference: pauseImage},
	}
)

func (i Image) archive(bin string) string {
	return filepath.Join(bin, strings.ReplaceAll(path.Base(i.Reference), ":", "-")+".tar")
}

// buildImages builds the programs of the images and packs them. It needs no
// registry, and the node's pods never pull.
func buildImages(ctx context.Context, source, bin string) error {
	for _, image := range images {
		program := filepath.Join(bin, image.Program)
		if err := goCommand(ctx, source, "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./images/"+image.Program); err != nil {
			return fmt.Errorf("image %s: %w", image.Reference, err)
		}
		if err := image.pack(program, image.archive(bin)); err != nil {
			return fmt.Errorf("image %s: %w", image.Reference, err)
		}
	}
	return nil
}

// Program returns the path of a program that the harness built.
func (h *Harness) Program(name string) string { return filepath.Join(h.bin, name) }

// Pack makes an image of a program, which nodes can import.
func (h *Harness) Pack(image Image, program string) error {
	if err := image.pack(program, image.archive(h.bin)); err != nil {
		return fmt.Errorf("image %s: %w", image.Reference, err)
	}
	return nil
}

func (i Image) pack(program, archive string) error {
	layer, err := i.layer(program)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + i.Program}, Cmd: i.Command, User: i.User}
	if i.Shell {
		config.Config.Entrypoint = nil
	}
	if i.System {
		config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	reference, err := name.NewTag(i.Reference)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, reference, image)
}

// system has the files that programs expect: the users of upstream's image agnhost, folders that
// all users can write to, and commands.
var system = []struct {
	tar.Header
	content string
}{
	{tar.Header{Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n"},
	{tar.Header{Name: "etc/group", Mode: 0o644}, "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"},
	{tar.Header{Name: "root/", Mode: 0o700, Typeflag: tar.TypeDir}, ""},
	{tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, ""},
	{tar.Header{Name: "uploads/", Mode: 0o777, Typeflag: tar.TypeDir}, ""},
	{tar.Header{Name: "var/", Mode: 0o755, Typeflag: tar.TypeDir}, ""},
	// Upstream's tests call nmeter -d0 %3t and curl URL, which Debian's busybox lacks.
	{tar.Header{Name: "bin/nmeter", Mode: 0o755}, `#!/bin/sh
set -- $(adjtimex | awk '/tv_sec/ { s = $2 } /tv_usec/ { printf "%d %03d", s, $2 / 1000 }')
echo "$(date -u -d "@$1" +%T).$2"
`},
	{tar.Header{Name: "bin/curl", Mode: 0o755}, "#!/bin/sh\nexec wget -q -O - \"$@\"\n"},
}

// layer makes the layer with the image's programs in the root folder, and links in
// /bin.
func (i Image) layer(program string) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, content []byte) error {
		h.Size = int64(len(content))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	linked := i.Program
	programs := map[string]string{i.Program: program}
	if i.Busybox != "" {
		linked = "busybox"
		programs[linked] = i.Busybox
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := add(tar.Header{Name: name, Mode: 0o644}, i.Files[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		data, err := os.ReadFile(programs[name])
		if err != nil {
			return nil, err
		}
		if err := add(tar.Header{Name: name, Mode: 0o755}, data); err != nil {
			return nil, err
		}
	}
	for _, link := range i.Links {
		if err := add(tar.Header{Name: "bin/" + link, Linkname: "/" + linked, Mode: 0o777, Typeflag: tar.TypeSymlink}, nil); err != nil {
			return nil, err
		}
	}
	if i.System {
		for _, f := range system {
			if err := add(f.Header, []byte(f.content)); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}
