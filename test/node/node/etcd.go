// SPDX-License-Identifier: Apache-2.0

package node

// startEtcd starts what the API server keeps its objects in. The server waits for
// it.
func (n *Node) startEtcd(clientURL, peerURL string) error {
	_, err := n.Start("etcd", n.Spec.Etcd,
		"--name=node", "--data-dir="+n.Path("etcd"),
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=node="+peerURL,
	)
	return err
}
