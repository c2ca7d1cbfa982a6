// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry is an image registry in memory, on loopback and without encryption. It keeps
// only the newest image, so that many large ones need no more memory than one.
type Registry struct {
	node   *Node
	host   string
	newest atomic.Pointer[http.Handler]
	server *http.Server
}

// StartRegistry starts a registry without images.
func (n *Node) StartRegistry() (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Registry{node: n, host: listener.Addr().String()}
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if images := r.newest.Load(); images != nil {
			(*images).ServeHTTP(w, req)
			return
		}
		http.NotFound(w, req)
	})}
	go r.server.Serve(listener)
	return r, nil
}

// Stop ends the registry and the downloads from it.
func (r *Registry) Stop() { r.server.Close() }

// Add replaces the registry's image by one with the crasher and a layer of random content,
// which no runtime has, of the given size in bytes. It returns the reference to pull.
func (r *Registry) Add(name string, size int64) (reference string, err error) {
	image, err := tarball.ImageFromPath(crasherImage.archive(r.node.Spec.Bin), nil)
	if err != nil {
		return "", err
	}
	layer, err := random.Layer(size, types.DockerLayer)
	if err != nil {
		return "", err
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return "", err
	}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.newest.Store(&images)
	repository := path.Join(r.host, name)
	if err := r.node.upload(image, "http://"+path.Join(r.host, "v2", name)); err != nil {
		return "", fmt.Errorf("image %s: %w", repository, err)
	}
	return repository + ":test", nil
}

// Push sends an image that the harness packed to a repository, such as localhost:5000/name, without encryption. Its tag is test.
func (n *Node) Push(image Image, repository string) error {
	packed, err := tarball.ImageFromPath(image.archive(n.Spec.Bin), nil)
	if err != nil {
		return err
	}
	host, name, _ := strings.Cut(repository, "/")
	return n.upload(packed, "http://"+path.Join(host, "v2", name))
}

// upload sends an image to the URL of a repository.
func (n *Node) upload(image v1.Image, repository string) error {
	send := func(method, path, media string, body io.Reader) error {
		request, err := http.NewRequestWithContext(n.ctx, method, repository+path, body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", media)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			return fmt.Errorf("%s %s: the registry answered %s", method, path, answer.Status)
		}
		return nil
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	for _, layer := range append(layers, config) {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := send(http.MethodPost, "/blobs/uploads/?digest="+digest.String(), "application/octet-stream", content); err != nil {
			return err
		}
	}
	media, err := image.MediaType()
	if err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	return send(http.MethodPut, "/manifests/test", string(media), bytes.NewReader(manifest))
}
