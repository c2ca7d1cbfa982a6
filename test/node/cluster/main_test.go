// SPDX-License-Identifier: Apache-2.0

// Package cluster has tests of a cluster: kubelets with runtimes in memory, and the real
// control plane with scheduler, controller manager and JobSet's controller, see
// TestCluster. hack/node-cluster.sh compiles and runs it.
package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The flags, which hack/node-cluster.sh sets. Without them the tests are skipped.
var (
	kubeletFlag   = flag.String("kubelet", "", "the patched kubelet `binary`")
	stockFlag     = flag.String("kubelet-stock", "", "the unpatched kubelet `binary` of the same release")
	apiserverFlag = flag.String("apiserver", "", "the patched kube-apiserver `binary`")
	managerFlag   = flag.String("controller-manager", "", "the kube-controller-manager `binary`")
	schedulerFlag = flag.String("scheduler", "", "the kube-scheduler `binary`")
	workFlag      = flag.String("work", "", "the `folder` for binaries, state and logs (default: _output/node of the repository)")
	recordFlag    = flag.String("record", "", "the `program` that stores the result for the matrix of releases")
	keepFlag      = flag.Bool("keep", false, "keep the logs even if nothing fails")
	insideFlag    = flag.Bool("inside", false, "set by the harness in the process that has the cluster")
)

// ran reports whether TestCluster ran.
var ran bool

// TestMain runs this program again in new namespaces, where the tests run.
func TestMain(m *testing.M) {
	flag.Parse()
	if *insideFlag {
		code := m.Run()
		if code == 0 && !ran {
			fmt.Fprintf(os.Stderr, "node-cluster: -test.run %s does not select TestCluster\n", flag.Lookup("test.run").Value)
			code = 1
		}
		os.Exit(code)
	}
	if *kubeletFlag == "" {
		os.Exit(m.Run())
	}
	ctx, stop := harness.Interruptible()
	err := inNamespaces(ctx)
	stop()
	harness.Exit("node-cluster", err)
}

func inNamespaces(ctx context.Context) (err error) {
	began := time.Now()
	h, err := harness.NewHarness(ctx, *workFlag, []harness.Program{
		{Flag: "-kubelet", Path: kubeletFlag}, {Flag: "-kubelet-stock", Path: stockFlag}, {Flag: "-apiserver", Path: apiserverFlag},
		{Flag: "-controller-manager", Path: managerFlag}, {Flag: "-scheduler", Path: schedulerFlag},
	}, harness.Needs{APIServer: true, JobSet: true})
	if err != nil {
		return err
	}
	h.Keep = *keepFlag
	defer func() {
		err = errors.Join(err, h.Check(os.Stderr))
		err = errors.Join(err, harness.Record(ctx, *recordFlag, "node-cluster", err == nil, ""))
		harness.Progress("done after %v", time.Since(began).Round(time.Second))
	}()
	sp := harness.Spec{APIServer: *apiserverFlag, Network: true}
	if err := h.Run(ctx, "cluster", sp, os.Stdout, append(os.Args[1:], "-inside")...); err != nil {
		return fmt.Errorf("the tests failed: %w", err)
	}
	return nil
}
