// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageID returns an ID for an image. Every image exists.
func imageID(reference string) string {
	if strings.HasPrefix(reference, "sha256:") {
		return reference
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(reference)))
}

func (r *Runtime) image(reference string) *runtimeapi.Image {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := imageID(reference)
	if r.images[id] == nil {
		r.images[id] = &runtimeapi.Image{Id: id, RepoTags: []string{reference}, Size: 1 << 20, Spec: &runtimeapi.ImageSpec{Image: id}}
	}
	return r.images[id]
}

// ImageStatus returns a status for any image.
func (r *Runtime) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: r.image(req.GetImage().GetImage())}, nil
}

// PullImage does nothing, because every image exists.
func (r *Runtime) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{ImageRef: r.image(req.GetImage().GetImage()).Id}, nil
}

// ListImages lists the images that earlier calls named.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &runtimeapi.ListImagesResponse{}
	for _, i := range r.images {
		all.Images = append(all.Images, i)
	}
	return all, nil
}

// RemoveImage removes an image from ListImages until a call names it again.
func (r *Runtime) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.images, imageID(req.GetImage().GetImage()))
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo returns the file system of Options.Dir.
func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	fs := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.options.Dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}
