// SPDX-License-Identifier: Apache-2.0

package harness

// startEtcd starts etcd. It does not wait, because the API server does.
func (n *Node) startEtcd(clientURL, peerURL string) error {
	_, err := n.Start("etcd", n.Spec.Etcd,
		"--name=node", "--data-dir="+n.Path("etcd"),
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=node="+peerURL,
	)
	return err
}
