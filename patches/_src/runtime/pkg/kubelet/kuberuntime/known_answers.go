/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kuberuntime

import (
	"context"
	"sync"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/lru"
)

// maxExitedStatuses bounds the memory, at some 2 KiB each. A node of 110 pods that
// crash-loop has about 220.
const maxExitedStatuses = 1000

// exitedStatuses asks a runtime for the status of an exited container once. That status
// changes no more, and the kubelet wants it each time when it looks at the pod, and twice
// more to remove the container.
type exitedStatuses struct {
	internalapi.RuntimeService
	statuses *lru.Cache
}

func newExitedStatuses(service internalapi.RuntimeService) internalapi.RuntimeService {
	return exitedStatuses{service, lru.New(maxExitedStatuses)}
}

func (s exitedStatuses) ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	if verbose {
		return s.RuntimeService.ContainerStatus(ctx, containerID, verbose)
	}
	if status, ok := s.statuses.Get(containerID); ok {
		return status.(*runtimeapi.ContainerStatusResponse), nil
	}
	status, err := s.RuntimeService.ContainerStatus(ctx, containerID, verbose)
	if err == nil && status.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.statuses.Add(containerID, status)
	}
	return status, err
}

func (s exitedStatuses) RemoveContainer(ctx context.Context, containerID string) error {
	err := s.RuntimeService.RemoveContainer(ctx, containerID)
	if err == nil {
		s.statuses.Remove(containerID)
	}
	return err
}

// maxImageUsers bounds the memory.
const maxImageUsers = 1000

// imageUsers are the users that images name for their containers, by the image's ID,
// which stands for its content. The zero value is empty.
type imageUsers struct {
	lock  sync.Mutex
	users map[string]imageUser
}

// imageUser is a numeric user, or else the name of one.
type imageUser struct {
	uid      *int64
	username string
}

// imageUser is getImageUser for the image of a container that starts. It asks the
// runtime only if it does not know the image with that ID.
func (m *kubeGenericRuntimeManager) imageUser(ctx context.Context, id, name string) (*int64, string, error) {
	m.imageUsers.lock.Lock()
	user, known := m.imageUsers.users[id]
	m.imageUsers.lock.Unlock()
	if known {
		return user.uid, user.username, nil
	}
	resp, err := m.imageService.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	image := resp.GetImage()
	if err != nil || image.GetId() != id {
		return m.getImageUser(ctx, name)
	}
	switch uid := image.GetUid(); {
	case uid != nil:
		user.uid = &uid.Value
	case image.GetUsername() != "":
		user.username = image.GetUsername()
	default:
		user.uid = new(int64) // Root.
	}
	m.imageUsers.lock.Lock()
	defer m.imageUsers.lock.Unlock()
	if m.imageUsers.users == nil || len(m.imageUsers.users) >= maxImageUsers {
		m.imageUsers.users = map[string]imageUser{}
	}
	m.imageUsers.users[id] = user
	return user.uid, user.username, nil
}
