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
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageService has one image with a name.
type imageService struct {
	internalapi.ImageManagerService
	image *runtimeapi.Image
	err   error
	asked int
}

func (s *imageService) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	s.asked++
	return &runtimeapi.ImageStatusResponse{Image: s.image}, s.err
}

// The runtime is asked for the user of an image once. The answer is kept only if it
// is for that image and not for another image with the same name.
func TestImageUser(t *testing.T) {
	ctx := context.Background()
	s := &imageService{}
	m := &kubeGenericRuntimeManager{imageService: s}
	zero, five := int64(0), int64(5)
	for _, tc := range []struct {
		image    *runtimeapi.Image
		uid      *int64
		username string
	}{
		{&runtimeapi.Image{Id: "sha256:a", Uid: &runtimeapi.Int64Value{Value: five}, Username: "ignored"}, &five, ""},
		{&runtimeapi.Image{Id: "sha256:b", Username: "nobody"}, nil, "nobody"},
		{&runtimeapi.Image{Id: "sha256:c"}, &zero, ""},
	} {
		s.image, s.asked = tc.image, 0
		for range 3 {
			uid, username, err := m.imageUser(ctx, tc.image.Id, "name")
			require.NoError(t, err)
			require.Equal(t, tc.uid, uid)
			require.Equal(t, tc.username, username)
		}
		require.Equal(t, 1, s.asked, tc.image.Id)
	}

	s.image = &runtimeapi.Image{Id: "sha256:new", Username: "other"}
	_, username, err := m.imageUser(ctx, "sha256:old", "name")
	require.NoError(t, err)
	require.Equal(t, "other", username, "as upstream")
	s.image = &runtimeapi.Image{Id: "sha256:old", Username: "right"}
	_, username, err = m.imageUser(ctx, "sha256:old", "name")
	require.NoError(t, err)
	require.Equal(t, "right", username, "what another image says is not kept")

	s.asked = 0
	_, _, err = m.imageUser(ctx, "example.com/image@sha256:right", "name")
	require.NoError(t, err)
	require.Equal(t, 1, s.asked, "a reference that is no ID costs no more than upstream")
	s.image = nil
	uid, _, err := m.imageUser(ctx, "", "name")
	require.NoError(t, err)
	require.Equal(t, &zero, uid)
	require.NotContains(t, m.imageUsers.users, "")

	s.err = fmt.Errorf("no answer")
	_, _, err = m.imageUser(ctx, "sha256:d", "name")
	require.ErrorIs(t, err, s.err)
	s.err = nil
	for i := range 2 * maxImageUsers {
		s.image = &runtimeapi.Image{Id: fmt.Sprint(i)}
		_, _, err = m.imageUser(ctx, s.image.Id, "name")
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(m.imageUsers.users), maxImageUsers)
}
