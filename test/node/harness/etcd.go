// SPDX-License-Identifier: Apache-2.0

package harness

// RunEtcd starts or restarts etcd. It does not wait, because the API server does.
func (n *Node) RunEtcd() (err error) {
	n.Etcd, err = n.Start("etcd", n.Spec.Etcd,
		"--name=node", "--data-dir="+n.Path("etcd"),
		"--listen-client-urls="+n.etcdURL, "--advertise-client-urls="+n.etcdURL,
		"--listen-peer-urls="+n.etcdPeerURL, "--initial-advertise-peer-urls="+n.etcdPeerURL, "--initial-cluster=node="+n.etcdPeerURL,
	)
	return err
}
