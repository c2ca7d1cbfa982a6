// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/cli"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/status"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

func newPluginStatus(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status NODE",
		Short: "Print the restarts on a node from the metrics of its kubelet",
		Long: `Print the restarts on a node from the metrics of its kubelet, which must be one of
this project. The API server reads them from the node. The output is that of
'crashloop status', whose help describes it.

Exit status: 0 the metrics were read; 1 they could not be read, or do not come from
such a kubelet; 2 wrong usage.`,
		Example: `  kubectl crashloop status NODE`,
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete("nodes", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return failed(err)
			}
			data, err := c.proxy(cmd.Context(), args[0], "metrics")
			if err != nil {
				return failed(err)
			}
			return failed(writeStatus(cmd.OutOrStdout(), output, data, nodeSource(args[0], "metrics"), nil))
		},
	}
	usage.Output(cmd, &output, statusFormats)
	return cmd
}

func newPluginCheck(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check NODE",
		Short: "Print the restart back-off of a node's configuration",
		Long: `Print the restart back-off of the configuration with which the kubelet of a node
runs. The API server reads it from the node's /configz, which includes the drop-ins
and flags. Feature gates that are not set have the defaults of a kubelet of this
project and of the node's release. A warning appears if the kubelet seems not to be one.

Exit status: 0 the configuration was read; 1 it could not be read; 2 wrong usage;
3 it is not valid.`,
		Example: `  kubectl crashloop check NODE`,
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete("nodes", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return failed(err)
			}
			load, err := c.nodeConfig(cmd.Context(), args[0])
			if err != nil {
				return failed(err)
			}
			r := &report{}
			r.addConfig(cli.Source{}, load)
			r.Valid = len(r.Errors) == 0
			return r.write(cmd.OutOrStdout(), output)
		},
	}
	usage.Output(cmd, &output, outputFormats())
	return cmd
}

func newPluginPlan(c *cluster) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan POD [--exit NAME=LIFE[,LIFE...]]...",
		Short: "Print when the containers of a pod will be restarted",
		Long: `Print when the containers of a pod will be restarted, from its status and the
configuration of its node. 'crashloop plan --help' describes the output and the
flags of the plan.

The configuration is that of 'kubectl crashloop check NODE'. With --config,
--config-dir, --curve or --feature-gates it is that of these flags instead, and the
node is not asked: for a user who may not get nodes/proxy, or to see what another
configuration would do.

Exit status: 0 the plan was printed; 1 the pod or the configuration could not be
read; 2 wrong usage; 3 one of them is invalid.`,
		Example: `  # the next restarts of a pod
  kubectl crashloop plan POD

  # the same, if the container recovers after twelve minutes
  kubectl crashloop plan POD --recover main=12m`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: c.complete("pods", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return failed(err)
			}
			pod := &v1.Pod{}
			if err := c.Get().Namespace(c.namespace).Resource("pods").Name(args[0]).Do(cmd.Context()).Into(pod); err != nil {
				return failed(err)
			}
			load := o.load
			if !slices.ContainsFunc([]string{"config", "config-dir", "curve", "feature-gates"}, cmd.Flags().Changed) {
				var err error
				if pod.Spec.NodeName == "" {
					err = fmt.Errorf("pod %s/%s has no node yet: pass the configuration of a node with --config, --config-dir, --curve or --feature-gates", pod.Namespace, pod.Name)
				} else {
					o.ofNode = true
					load, err = c.nodeConfig(cmd.Context(), pod.Spec.NodeName)
				}
				if err != nil {
					return failed(err)
				}
			}
			read := func(_ *report, source string, visit visitObject) {
				visit(source, objectName(pod, "Pod"), pod, pod, field.NewPath("spec"))
			}
			return planPods(o, load, []string{"node/" + pod.Spec.NodeName}, read, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addPlanFlags(cmd, &o)
	return cmd
}

var buildInfo = regexp.MustCompile(`(?m)^kubernetes_build_info\{.*git_version="v1\.([0-9]+)\.`)

// nodeConfig reads the configuration of a node's kubelet. It returns the function that parses
// it, which warns if the kubelet is none of this project.
func (c *cluster) nodeConfig(ctx context.Context, node string) (func() (*kubeletconfig.Config, error), error) {
	configz, err := c.proxy(ctx, node, "configz")
	if err != nil {
		return nil, err
	}
	metrics, err := c.proxy(ctx, node, "metrics")
	if err != nil {
		return nil, err
	}
	minor := uint64(0)
	if m := buildInfo.FindSubmatch(metrics); m != nil {
		minor, _ = strconv.ParseUint(string(m[1]), 10, 16)
	}
	_, unpatched := status.New(metrics)
	return func() (*kubeletconfig.Config, error) {
		config, err := kubeletconfig.ParseConfigz(nodeSource(node, "configz"), configz, uint(minor))
		if unpatched != nil {
			config.Warnings = append(config.Warnings, kubeletconfig.Warning{File: nodeSource(node, "metrics"),
				Detail: "none of the metrics of this project, so probably a stock kubelet: it restarts later, and some delays differ"})
		}
		return config, err
	}, nil
}
