// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The two users of the node's API server. The server listens on loopback only
// and lives as long as one run, so that fixed tokens give nobody anything.
const (
	kubeletToken = "kubelet"
	harnessToken = "harness"
	tokens       = kubeletToken + `,system:node:` + nodeName + `,kubelet,"system:nodes"
` + harnessToken + `,harness,harness,"system:masters"
`
)

// apiServer is the node's kube-apiserver and a client of it.
type apiServer struct {
	*process
	args []string
	// certificate is the file with what the server made for itself.
	certificate string
	url         string
	client      *http.Client
	kubeconfig  string
}

// startAPIServer brings up etcd and kube-apiserver and returns when pods can be
// created, which is only after the default namespace exists.
func (n *node) startAPIServer(extra ...string) (*apiServer, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	etcdURL, peerURL := loopback("http", ports[0]), loopback("http", ports[1])
	if _, err := n.start("etcd", n.spec.Etcd,
		"--name=node", "--data-dir="+n.path("etcd"),
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=node="+peerURL,
	); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.path("tokens.csv"), []byte(tokens), 0o600); err != nil {
		return nil, err
	}
	if err := writeKey(n.path("service-account.key")); err != nil {
		return nil, err
	}
	api := &apiServer{url: loopback("https", ports[2]), kubeconfig: n.path("kubeconfig")}
	api.certificate = n.path("apiserver-pki", "apiserver.crt")
	api.args = []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		// Endpoints may not name a loopback address, and nothing here uses them.
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + n.path("apiserver-pki"),
		"--token-auth-file=" + n.path("tokens.csv"),
		"--authorization-mode=AlwaysAllow",
		// No controller manager runs that would create the default account.
		"--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://node.invalid",
		"--service-account-key-file=" + n.path("service-account.key"),
		"--service-account-signing-key-file=" + n.path("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
	}
	if err := api.writeKubeconfig(api.kubeconfig, kubeletToken); err != nil {
		return nil, err
	}
	api.args = append(api.args, extra...)
	return api, n.serve(api)
}

// writeKubeconfig makes a kubeconfig for the user that a token is for.
func (api *apiServer) writeKubeconfig(path, token string) error {
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: node
clusters: [{name: node, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: node, context: {cluster: node, user: user}}]
`, api.url, api.certificate, token), 0o600)
}

// serve starts kube-apiserver, for the first time or again, and returns when it
// answers.
func (n *node) serve(api *apiServer) (err error) {
	if api.process, err = n.start("kube-apiserver", n.spec.APIServer, api.args...); err != nil {
		return err
	}
	return await(n.ctx, "the default namespace", 2*time.Minute, func(ctx context.Context) error {
		if api.client == nil {
			client, err := clientFor(api.certificate)
			if err != nil {
				return err
			}
			api.client = client
		}
		return get(ctx, api.client, api.url+"/api/v1/namespaces/default", harnessToken, nil)
	})
}

// createPods creates the scenario's pods once the kubelet has registered.
func (n *node) createPods(api *apiServer) error {
	if err := await(n.ctx, "the node object", time.Minute, func(ctx context.Context) error {
		return get(ctx, api.client, api.url+"/api/v1/nodes/"+nodeName, harnessToken, nil)
	}); err != nil {
		return err
	}
	for _, pod := range n.pods() {
		data, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		if err := request(n.ctx, api.client, http.MethodPost, api.url+"/api/v1/namespaces/default/pods", harnessToken, data, nil); err != nil {
			return err
		}
	}
	return nil
}

// requests returns how many requests for pods and events the server has
// answered, by verb and resource. Nobody but the kubelet makes any, once the
// pods are created: there is no scheduler and no controller. A watch is counted
// when it ends, which has nothing to do with restarts.
func (api *apiServer) requests(ctx context.Context) (map[string]float64, error) {
	var families map[string]*dto.MetricFamily
	err := get(ctx, api.client, api.url+"/metrics", harnessToken, func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err = parser.TextToMetricFamilies(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	const metric = "apiserver_request_total"
	family, found := families[metric]
	if !found {
		return nil, fmt.Errorf("kube-apiserver has no metric %s", metric)
	}
	return countRequests(family), nil
}

func countRequests(family *dto.MetricFamily) map[string]float64 {
	counts := map[string]float64{}
	for _, m := range family.GetMetric() {
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		if r := label["resource"]; (r == "pods" || r == "events") && label["verb"] != "WATCH" {
			counts[label["verb"]+" "+r] += m.GetCounter().GetValue()
		}
	}
	return counts
}

// increase is what was added between two counts.
func increase(before, after map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for kind, count := range after {
		if grown := count - before[kind]; grown > 0 {
			d[kind] = grown
		}
	}
	return d
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// clientFor trusts the certificate that kube-apiserver made for itself.
func clientFor(certificate string) (*http.Client, error) {
	data, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", certificate)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}, nil
}

// writeKey makes the key that signs service-account tokens. Nothing here asks
// for one, but kube-apiserver does not start without.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func get(ctx context.Context, c *http.Client, url, token string, use func(io.Reader) error) error {
	return request(ctx, c, http.MethodGet, url, token, nil, use)
}

// request sends a request and lets use, where it is not nil, read the answer.
func request(ctx context.Context, c *http.Client, method, url, token string, body []byte, use func(io.Reader) error) error {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, bytes.TrimSpace(text))
	}
	if use != nil {
		return use(answer.Body)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
