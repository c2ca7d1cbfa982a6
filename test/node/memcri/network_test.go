// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plugin is a network plugin that notes its calls, and fails if there is no namespace other
// than the caller's.
const plugin = `#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
  exit
fi
[ "$(stat -Lc %%i "$CNI_NETNS")" != "$(stat -Lc %%i /proc/self/ns/net)" ] || exit 1
echo "$CNI_COMMAND $CNI_CONTAINERID" >>'%s'
echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}]}'
`

func TestNetworkPlugins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "noting"), fmt.Appendf(nil, plugin, calls), 0o755))
	conf := filepath.Join(dir, "net.conflist")
	require.NoError(t, os.WriteFile(conf, []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "noting"}]}`), 0o644))
	r := New(Options{})
	var err error
	r.network, err = newNetwork(conf, []string{dir}, filepath.Join(dir, "netns"))
	require.NoError(t, err)
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(r.network.dir, "*"))
		for _, path := range left {
			_ = syscall.Unmount(path, syscall.MNT_DETACH)
		}
	})
	run := func(name string, mode runtimeapi.NamespaceMode) (id, ip string) {
		made, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name},
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: mode},
			}},
		}})
		require.NoError(t, err)
		status, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.PodSandboxId})
		require.NoError(t, err)
		return made.PodSandboxId, status.Status.Network.Ip
	}
	onHost, ip := run("on-host", runtimeapi.NamespaceMode_NODE)
	assert.Empty(t, ip, "the address of a pod on the host's network")
	own, ip := run("own", runtimeapi.NamespaceMode_POD)
	assert.Equal(t, "10.1.2.3", ip)
	// The kubelet stops sandboxes again and again.
	for _, id := range []string{onHost, own, own} {
		_, err := r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		require.NoError(t, err)
	}
	noted, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Equal(t, []string{"ADD " + own, "DEL " + own, ""}, strings.Split(string(noted), "\n"))
	left, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(left), dir, "mounts that are left")
}
