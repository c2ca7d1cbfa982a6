// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// checkHealth returns a function for agent.Options.GRPC. As in pkg/probe/grpc, every
// status except SERVING is a failure. dial connects to the pod; if it is nil, the pod has
// the network of this process.
func checkHealth(dial func(ctx context.Context, address string, limit time.Duration) (net.Conn, error)) func(ctx context.Context, address, service string) (output string, ok bool, err error) {
	dialer := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if dial == nil {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		return dial(ctx, address, 0) // ctx has the limit.
	})
	return func(ctx context.Context, address, service string) (output string, ok bool, err error) {
		connection, err := grpc.NewClient("passthrough:///"+address, dialer, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/1.37"))
		if err != nil {
			return "", false, err
		}
		defer connection.Close()
		response, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		switch {
		case err != nil:
			return err.Error(), false, nil
		case response.Status != grpc_health_v1.HealthCheckResponse_SERVING:
			return "service unhealthy (responded with " + response.Status.String() + ")", false, nil
		}
		return "", true, nil
	}
}
