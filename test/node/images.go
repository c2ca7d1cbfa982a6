// SPDX-License-Identifier: Apache-2.0

package main

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

const (
	crasherImage = "localhost/kubelet-backoff/crasher:test"
	actorImage   = "localhost/kubelet-backoff/actor:test"
	pauseImage   = "localhost/kubelet-backoff/pause:test"
)

// nodeImage is an image that holds one static program and nothing else but links
// to it, which a program that goes by its name needs.
type nodeImage struct {
	program, reference string
	links              []string
}

var nodeImages = []nodeImage{
	{program: "crasher", reference: crasherImage},
	{program: "actor", reference: actorImage},
	{program: "pause", reference: pauseImage},
}

func (i nodeImage) archive(bin string) string { return filepath.Join(bin, i.program+".tar") }

// buildImages builds the programs of the images and packs them. No registry is
// ever asked: the node's pods never pull.
func buildImages(ctx context.Context, source, bin string) error {
	for _, image := range nodeImages {
		program := filepath.Join(bin, image.program)
		if err := goCommand(ctx, source, "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./images/"+image.program); err != nil {
			return fmt.Errorf("image %s: %w", image.reference, err)
		}
		if err := image.pack(program, image.archive(bin)); err != nil {
			return fmt.Errorf("image %s: %w", image.reference, err)
		}
	}
	return nil
}

func (i nodeImage) pack(program, archive string) error {
	layer, err := layerOf(program, i.program, i.links)
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
	config.Config = v1.Config{Entrypoint: []string{"/" + i.program}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	reference, err := name.NewTag(i.reference)
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
