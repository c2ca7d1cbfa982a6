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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxImageUsers limits the memory.
const maxImageUsers = 1000

// imageUsers holds the users of images by image ID, which identifies the content. The
// zero value is empty.
type imageUsers struct {
	lock  sync.Mutex
	users map[string]imageUser
}

// imageUser is a numeric user ID or a user name.
type imageUser struct {
	uid      *int64
	username string
}

// imageUser is getImageUser for the image of a container that is about to start. It
// asks the runtime only if it does not know the image ID. It keeps the answer only if
// that is for the same image, because the name may refer to another one by then.
func (m *kubeGenericRuntimeManager) imageUser(ctx context.Context, id, name string) (*int64, string, error) {
	m.imageUsers.lock.Lock()
	user, known := m.imageUsers.users[id]
	m.imageUsers.lock.Unlock()
	if known {
		return user.uid, user.username, nil
	}
	resp, err := m.imageService.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	if err != nil {
		return nil, "", err
	}
	image := resp.GetImage()
	switch uid := image.GetUid(); {
	case uid != nil:
		user.uid = &uid.Value
	case image.GetUsername() != "":
		user.username = image.GetUsername()
	default:
		user.uid = new(int64) // Root.
	}
	if id == "" || image.GetId() != id {
		return user.uid, user.username, nil
	}
	m.imageUsers.lock.Lock()
	defer m.imageUsers.lock.Unlock()
	if m.imageUsers.users == nil || len(m.imageUsers.users) >= maxImageUsers {
		m.imageUsers.users = map[string]imageUser{}
	}
	m.imageUsers.users[id] = user
	return user.uid, user.username, nil
}
