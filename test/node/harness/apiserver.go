// SPDX-License-Identifier: Apache-2.0

package harness

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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The two users of the node's API server. The server listens on loopback only
// and lives as long as one run, so that fixed tokens are safe.
const (
	kubeletToken = "kubelet"
	// Token is the token of the user with all permissions.
	Token  = "harness"
	tokens = kubeletToken + `,system:node:` + Name + `,kubelet,"system:nodes"
` + Token + `,harness,harness,"system:masters"
`
)

// APIServer is the node's kube-apiserver and a client of it.
type APIServer struct {
	*Process
	// Args are the arguments with which Serve starts it.
	Args []string
	// Certificate is the file with the server's self-signed certificate.
	Certificate string
	// URL is the address on which it listens.
	URL string
	// Kubeconfig is the kubelet's kubeconfig file.
	Kubeconfig string
	client     *http.Client
}

// StartAPIServer starts etcd and kube-apiserver with extra arguments. It returns
// when pods can be created, which is when the default namespace exists.
func (n *Node) StartAPIServer(extra ...string) (*APIServer, error) {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	n.etcdURL, n.etcdPeerURL = loopback("http", ports[0]), loopback("http", ports[1])
	if err := n.RunEtcd(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.Path("tokens.csv"), []byte(tokens), 0o600); err != nil {
		return nil, err
	}
	if err := writeKey(n.Path("service-account.key")); err != nil {
		return nil, err
	}
	api := &APIServer{URL: loopback("https", ports[2]), Kubeconfig: n.Path("kubeconfig")}
	api.Certificate = n.Path("apiserver-pki", "apiserver.crt")
	api.Args = []string{
		"--etcd-servers=" + n.etcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		// Endpoints may not name a loopback address, and nothing here uses them.
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + n.Path("apiserver-pki"),
		"--token-auth-file=" + n.Path("tokens.csv"),
		"--authorization-mode=AlwaysAllow",
		// No controller manager runs that would create the default account.
		"--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://node.invalid",
		"--service-account-key-file=" + n.Path("service-account.key"),
		"--service-account-signing-key-file=" + n.Path("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
	}
	if err := api.WriteKubeconfig(api.Kubeconfig, kubeletToken); err != nil {
		return nil, err
	}
	api.Args = append(api.Args, extra...)
	return api, n.Serve(api)
}

// WriteKubeconfig writes a kubeconfig for the user of a token.
func (api *APIServer) WriteKubeconfig(path, token string) error {
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: node
clusters: [{name: node, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: node, context: {cluster: node, user: user}}]
`, api.URL, api.Certificate, token), 0o600)
}

// Clientset returns a client with all permissions.
func (api *APIServer) Clientset() (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(&rest.Config{
		Host: api.URL, BearerToken: Token, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: api.Certificate},
	})
}

// StartController starts a controller or the scheduler with extra arguments.
func (n *Node) StartController(api *APIServer, name, program string, args ...string) error {
	kubeconfig := n.Path(name + ".kubeconfig")
	if err := api.WriteKubeconfig(kubeconfig, Token); err != nil {
		return err
	}
	_, err := n.Start(name, program, append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	return err
}

// Serve starts or restarts kube-apiserver, and returns when it is ready: it ends if etcd is
// killed before then.
func (n *Node) Serve(api *APIServer) (err error) {
	if api.Process, err = n.Start("kube-apiserver", n.Spec.APIServer, api.Args...); err != nil {
		return err
	}
	return Await(n.ctx, "a ready API server", startLimit, func(ctx context.Context) error {
		if api.client == nil {
			client, err := clientFor(api.Certificate)
			if err != nil {
				return err
			}
			api.client = client
		}
		if err := api.Request(ctx, http.MethodGet, "/readyz", nil, nil); err != nil {
			return err
		}
		return api.Request(ctx, http.MethodGet, "/api/v1/namespaces/default", nil, nil)
	})
}

// AwaitNode waits until the kubelet of this name has registered.
func (api *APIServer) AwaitNode(ctx context.Context, name string) error {
	return Await(ctx, "the node object", startLimit, func(ctx context.Context) error {
		return api.Request(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, nil)
	})
}

// Create creates an object.
func (api *APIServer) Create(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return api.Request(ctx, http.MethodPost, path, body, nil)
}

// Request sends the server a request. The body may be nil. If use is not nil, it
// reads the response.
func (api *APIServer) Request(ctx context.Context, method, path string, body []byte, use func(io.Reader) error) error {
	return request(ctx, api.client, method, api.URL+path, Token, body, use)
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// clientFor returns a client that trusts kube-apiserver's self-signed certificate.
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

// writeKey writes the key that signs service account tokens. The node uses no such
// tokens, but kube-apiserver does not start without the key.
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

// request is Request for any server. The token may be empty.
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
