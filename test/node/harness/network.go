// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// The addresses of the node and its pods, in a network that is not reachable from
// outside.
const (
	// IP is the address of the node.
	IP         = "10.88.0.1"
	podNetwork = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "ptp",
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.89.0.0/24"}]]}
  }]
}
`
	// unusedNetwork is for a node without its own network, whose pods all use the host's.
	// Without a network plugin, the node would not become ready, and the kubelet would
	// poll the runtime ten times a second for two minutes.
	unusedNetwork = `{"cniVersion": "1.0.0", "name": "unused", "plugins": [{"type": "loopback"}]}`
)

// setUpNetwork brings up loopback with 127.0.0.1 and the node's address, and adds a
// default route, by which programs find that address. It also writes the
// configuration of the network of pods.
func (n *Node) setUpNetwork(cni string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing up the node's loopback: %w", err)
	}
	address, err := netlink.ParseAddr(IP + "/32")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(lo, address); err != nil {
		return fmt.Errorf("setting the node's address %s: %w", address, err)
	}
	_, everywhere, err := net.ParseCIDR("0.0.0.0/0")
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: everywhere}); err != nil {
		return fmt.Errorf("setting the node's default route: %w", err)
	}
	list := fmt.Appendf(nil, podNetwork, n.Path("ipam"))
	return os.WriteFile(filepath.Join(cni, "pods.conflist"), list, 0o644)
}
