// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// network sends the requests of probes and hooks to a container.
type network struct {
	ctx     context.Context
	runtime Runtime
	ip      string
	ports   []v1.ContainerPort
	timeout time.Duration
}

// probe runs a probe once. An error is neither success nor failure.
func (n network) probe(probe *v1.Probe) (output string, ok bool, err error) {
	switch {
	case probe.HTTPGet != nil:
		return n.get(probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := n.address(probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return "", false, err
		}
		connection, err := n.dial(n.ctx, "tcp", address)
		if err != nil {
			return err.Error(), false, nil
		}
		return "", true, connection.Close()
	}
	return "", false, errors.New("the probe has no handler")
}

// dial connects to the container.
func (n network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d, ok := n.runtime.(Dialer); ok {
		return d.Dial(ctx, address, n.timeout)
	}
	return (&net.Dialer{Timeout: n.timeout}).DialContext(ctx, network, address)
}

// maxResponse is the number of bytes of a response that are read, as in pkg/probe/http.
const maxResponse = 10 << 10

func (n network) get(get *v1.HTTPGetAction) (output string, ok bool, err error) {
	if _, err := n.address(get.Host, get.Port); err != nil {
		return "", false, err
	}
	code, err := n.request(get)
	switch {
	case err != nil:
		return err.Error(), false, nil
	case code < http.StatusOK || code >= http.StatusBadRequest:
		return fmt.Sprintf("HTTP probe failed with statuscode: %d", code), false, nil
	}
	return "", true, nil
}

// request sends the request of a probe or a hook and returns the status code.
func (n network) request(get *v1.HTTPGetAction) (code int, err error) {
	address, err := n.address(get.Host, get.Port)
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(cmp.Or(get.Scheme, v1.URISchemeHTTP))), address
	request, err := http.NewRequestWithContext(n.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("User-Agent", "kube-probe/1.37")
	request.Header.Set("Accept", "*/*")
	own := http.Header{}
	for _, h := range get.HTTPHeaders {
		own.Add(h.Name, h.Value)
	}
	maps.Copy(request.Header, own)
	if host := own.Get("Host"); host != "" {
		request.Host = host
	}
	client := &http.Client{
		Timeout: n.timeout,
		// As in the kubelet, certificates are not verified and proxies are not used.
		Transport: &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse // The redirect itself counts as a success.
			case len(via) >= 10:
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxResponse))
	return response.StatusCode, err
}

// address returns the address of a port. The port is a number or the name of a port of
// the container.
func (n network) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = n.ip
	}
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range n.ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return "", fmt.Errorf("the container has no port %s", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
