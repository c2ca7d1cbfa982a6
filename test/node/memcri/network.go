// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	types "github.com/containernetworking/cni/pkg/types/100"
)

// network gives sandboxes network namespaces, in which it calls network plugins, as other
// runtimes do.
type network struct {
	*libcni.CNIConfig
	list *libcni.NetworkConfigList
	// dir has a file for each namespace.
	dir string
}

// newNetwork reads the configuration of a network, whose plugins are in these folders.
func newNetwork(conf string, plugins []string, dir string) (*network, error) {
	list, err := libcni.ConfListFromFile(conf)
	if err != nil {
		return nil, err
	}
	return &network{libcni.NewCNIConfigWithCacheDir(plugins, filepath.Join(dir, "cache"), nil), list, dir}, os.MkdirAll(dir, 0o755)
}

func (n *network) of(id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: filepath.Join(n.dir, id), IfName: "eth0"}
}

// add makes the network of a sandbox, and returns its address.
func (n *network) add(ctx context.Context, id string) (string, error) {
	if err := newNamespace(n.of(id).NetNS); err != nil {
		return "", err
	}
	result, err := n.AddNetworkList(ctx, n.list, n.of(id))
	if err != nil {
		return "", errors.Join(err, n.remove(ctx, id))
	}
	r, err := types.NewResultFromResult(result)
	if err == nil && len(r.IPs) == 0 {
		err = errors.New("the network plugins gave the sandbox no address")
	}
	if err != nil {
		return "", errors.Join(err, n.remove(ctx, id))
	}
	return r.IPs[0].Address.IP.String(), nil
}

// remove removes the network of a sandbox. It may be called again.
func (n *network) remove(ctx context.Context, id string) error {
	path := n.of(id).NetNS
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := n.DelNetworkList(ctx, n.list, n.of(id)); err != nil {
		return err
	}
	return errors.Join(syscall.Unmount(path, syscall.MNT_DETACH), os.Remove(path))
}

// newNamespace makes a network namespace, which lives as long as the mount on the file.
func newNamespace(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		// The thread keeps the new namespace, so it must end with the goroutine.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- syscall.Mount("/proc/thread-self/ns/net", path, "", syscall.MS_BIND, "")
	}()
	return <-done
}
