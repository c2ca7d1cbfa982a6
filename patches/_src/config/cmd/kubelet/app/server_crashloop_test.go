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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfigvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The maximum has no default, and its gate can be turned off in every way in
// which a gate can be set.
func TestMaxContainerRestartPeriodOfFlagsFileAndDropin(t *testing.T) {
	const (
		header  = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
		gateOff = "featureGates: {KubeletCrashLoopBackOffMax: false}\n"
		max4s   = "crashLoopBackOff: {maxContainerRestartPeriod: 4s}\n"
		null    = "crashLoopBackOff: {maxContainerRestartPeriod: null}\n"
	)
	noGate := []string{"--feature-gates=KubeletCrashLoopBackOffMax=false"}
	period := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, tc := range map[string]struct {
		args         []string
		file, dropin string
		want         *metav1.Duration
	}{
		"nothing":                          {},
		"nothing in the file":              {file: header},
		"gate off by flag":                 {args: noGate},
		"gate off by file":                 {file: header + gateOff},
		"gate off by drop-in":              {dropin: header + gateOff},
		"gate off by drop-in, with a file": {file: header, dropin: header + gateOff},
		"gate off by flag, set by file":    {args: noGate, file: header + max4s, want: period(4 * time.Second)},
		"gate off by drop-in, set by file": {file: header + max4s, dropin: header + gateOff, want: period(4 * time.Second)},
		"set by drop-in":                   {file: header, dropin: header + max4s, want: period(4 * time.Second)},
		"null in the file":                 {file: header + null},
		"null in the drop-in, set by file": {file: header + max4s, dropin: header + null, want: afterNullForTest(period(4 * time.Second))},
		"all null in the drop-in":          {file: header + max4s, dropin: header + "crashLoopBackOff: null\n", want: afterNullForTest(period(4 * time.Second))},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kc, err := options.NewKubeletConfiguration()
			require.NoError(t, err)
			if tc.file != "" {
				file := filepath.Join(dir, "config.yaml")
				require.NoError(t, os.WriteFile(file, []byte(tc.file), 0o600))
				kc, err = loadConfigFileForTest(ktesting.Init(t), file)
				require.NoError(t, err)
			}
			if tc.dropin != "" {
				dropins := filepath.Join(dir, "config.d")
				require.NoError(t, os.Mkdir(dropins, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(dropins, "10.conf"), []byte(tc.dropin), 0o600))
				require.NoError(t, mergeKubeletConfigurationsForTest(kc, dropins))
			}
			// The cgroup version of the host does not matter for this test.
			require.NoError(t, kubeletConfigFlagPrecedence(kc, append(tc.args, "--fail-cgroupv1=false")))
			assert.Equal(t, tc.want, kc.CrashLoopBackOff.MaxContainerRestartPeriod)
			assert.NoError(t, kubeletconfigvalidation.ValidateKubeletConfiguration(kc, utilfeature.DefaultFeatureGate))
		})
	}
}
