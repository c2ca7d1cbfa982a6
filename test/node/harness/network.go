// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

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
    "type": "bridge", "bridge": "pods", "isGateway": true,
    "ipam": {"type": "noting-ipam", "dataDir": %q, "ranges": [[{"subnet": "10.89.0.0/22"}]]}
  }]
}
`
	// notingIPAM notes each call of host-local. The bridge plugin calls it in each of its
	// own calls.
	notingIPAM = `#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID" >>'%s'
exec '%s'
`
	// unusedNetwork is for a node without its own network, whose pods all use the host's.
	// Without a network plugin, the node would not become ready, and the kubelet would
	// poll the runtime ten times a second for two minutes.
	unusedNetwork = `{"cniVersion": "1.0.0", "name": "unused", "plugins": [{"type": "loopback"}]}`
)

// SetUpNetwork brings up loopback with 127.0.0.1 and the node's address, and adds a
// default route, by which programs find that address. It also writes the configuration of
// the pods' network, and returns its file and the folders of its plugins.
func (n *Node) SetUpNetwork() (conf string, plugins []string, err error) {
	cni := n.cni()
	if err := n.setUpLoopback(); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(cni, 0o755); err != nil {
		return "", nil, err
	}
	script := fmt.Appendf(nil, notingIPAM, filepath.Join(cni, "ipam-calls"), filepath.Join(n.Spec.Bin, "host-local"))
	if err := os.WriteFile(filepath.Join(cni, "noting-ipam"), script, 0o755); err != nil {
		return "", nil, err
	}
	conf = filepath.Join(cni, "pods.conflist")
	return conf, []string{n.Spec.Bin, cni}, os.WriteFile(conf, fmt.Appendf(nil, podNetwork, filepath.Join(cni, "ipam")), 0o644)
}

// cni returns the folder with everything that belongs to the network of pods.
func (n *Node) cni() string { return n.Path("cni") }

func (n *Node) setUpLoopback() error {
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
	return nil
}

// PodNetwork has what the network plugins made for a sandbox.
type PodNetwork struct {
	// Addresses are reserved for the sandbox, and Interfaces connect it to the bridge.
	// They have an index and a hardware address, which a new interface of the same name
	// would not have.
	Addresses, Interfaces []string
	// Calls are the calls of the plugins that change something: ADD or DEL. CRI-O also calls
	// CHECK when it shows a sandbox.
	Calls []string
}

// PodNetwork returns the network of a sandbox. It is empty if the plugins were never
// called.
func (n *Node) PodNetwork(sandbox string) (found PodNetwork, err error) {
	leases, err := filepath.Glob(filepath.Join(n.cni(), "ipam", "pods", "*.*.*.*"))
	if err != nil {
		return found, err
	}
	for _, lease := range leases {
		// Another sandbox may have just given its address back.
		if owner, err := os.ReadFile(lease); err == nil && strings.Contains(string(owner), sandbox) {
			found.Addresses = append(found.Addresses, filepath.Base(lease))
		}
	}
	calls, err := os.ReadFile(filepath.Join(n.cni(), "ipam-calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return found, err
	}
	for line := range strings.Lines(string(calls)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == sandbox && f[0] != "CHECK" {
			found.Calls = append(found.Calls, f[0])
		}
	}
	// The runtime keeps the result of the plugins for their next call.
	cached, err := os.ReadFile(filepath.Join("/var/lib/cni/results", "pods-"+sandbox+"-eth0"))
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	var cache struct {
		Result struct {
			Interfaces []struct{ Name, Sandbox string }
		}
	}
	if err := json.Unmarshal(cached, &cache); err != nil {
		return found, fmt.Errorf("network of sandbox %s: %w", sandbox, err)
	}
	for _, i := range cache.Result.Interfaces {
		if link, err := net.InterfaceByName(i.Name); err == nil && i.Sandbox == "" && i.Name != "pods" {
			found.Interfaces = append(found.Interfaces, fmt.Sprintf("%d: %s %s", link.Index, link.Name, link.HardwareAddr))
		}
	}
	return found, nil
}
