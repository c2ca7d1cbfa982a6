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

package app

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// The test helpers in this file depend on the Kubernetes release.

func loadConfigFileForTest(_ context.Context, name string) (*kubeletconfiginternal.KubeletConfiguration, error) {
	return loadConfigFile(name)
}

func mergeKubeletConfigurationsForTest(kc *kubeletconfiginternal.KubeletConfiguration, dropins string) error {
	return mergeKubeletConfigurations(kc, dropins)
}

// afterNullForTest returns the maximum if the file sets this value and a drop-in
// sets null.
func afterNullForTest(_ *metav1.Duration) *metav1.Duration { return nil }
