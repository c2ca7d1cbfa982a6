// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images that every node has. Their programs are in the folder images.
const (
	CrasherImage = "localhost/kubelet-backoff/crasher:test"
	ActorImage   = "localhost/kubelet-backoff/actor:test"
	pauseImage   = "localhost/kubelet-backoff/pause:test"
)

// Image is an image that holds one static program and nothing else but links
// to it, which a program that goes by its name needs.
type Image struct {
	// Program is its name in the root folder, and Reference that of the image.
	Program, Reference string
	// Links are names in /bin.
	Links []string
}

var images = []Image{
	{Program: "crasher", Reference: CrasherImage},
	{Program: "actor", Reference: ActorImage},
	{Program: "pause", Reference: pauseImage},
}

func (i Image) archive(bin string) string { return filepath.Join(bin, i.Program+".tar") }

// buildImages builds the programs of the images and packs them. No registry is
// ever asked: the node's pods never pull.
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

// Pack makes an image of a program, for nodes to import.
func (h *Harness) Pack(image Image, program string) error {
	if err := image.pack(program, image.archive(h.bin)); err != nil {
		return fmt.Errorf("image %s: %w", image.Reference, err)
	}
	return nil
}

// Import hands containerd an image that the harness has packed.
func (n *Node) Import(image Image) error {
	_, err := n.Ctr(n.ctx, "images", "import", image.archive(n.Spec.Bin))
	return err
}

func (i Image) pack(program, archive string) error {
	layer, err := layerOf(program, i.Program, i.Links)
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
	config.Config = v1.Config{Entrypoint: []string{"/" + i.Program}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	reference, err := name.NewTag(i.Reference)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, reference, image)
}

// layerOf makes a layer of one executable file in the root folder, and of links
// to it in /bin.
func layerOf(program, name string, links []string) (v1.Layer, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	for _, link := range links {
		if err := w.WriteHeader(&tar.Header{Name: "bin/" + link, Linkname: "/" + name, Mode: 0o777, Typeflag: tar.TypeSymlink}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}
