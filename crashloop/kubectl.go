// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
)

// kubectl finds its plugins, and what completes their arguments, by these names of programs.
const (
	pluginName   = "kubectl-crashloop"
	completeName = "kubectl_complete-crashloop"
)

// newRootFor returns the command for the name of the program, and the arguments for it.
func newRootFor(program string, args []string) (*cobra.Command, []string) {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginName:
		return newPluginCommand(time.Now), args
	case completeName:
		return newPluginCommand(time.Now), slices.Concat([]string{cobra.ShellCompRequestCmd}, args)
	}
	return newRootCommand(), args
}

func newPluginCommand(now func() time.Time) *cobra.Command {
	c := &cluster{}
	root := &cobra.Command{
		Use:         pluginName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl crashloop"},
		Short:       "Show how the kubelets of a cluster restart containers",
		Long: `Show how the kubelets of a cluster restart containers.

top needs list on pods, with -w also watch, and list on events, without which it
counts fewer restarts. status and check need get on nodes/proxy, and plan also get
on pods. restart needs get and patch on pods. nodes/proxy allows more: whoever has
it can run commands in all containers of the nodes.`,
	}
	c.addFlags(root)
	root.AddCommand(newPluginTop(c, now), newPluginStatus(c), newPluginPlan(c), newPluginCheck(c), newPluginRestart(c, now))
	return setUp(root)
}

// cluster is a client of an API server. It has only the types of core/v1, because the clientset
// of client-go would link those of all API groups.
type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	rest.Interface
	namespace string
	limit     time.Duration
	// lastDate is the header Date of the last response, or "".
	lastDate atomic.Value
}

// date returns the time of the API server in its last response, or "".
func (c *cluster) date() string {
	date, _ := c.lastDate.Load().(string)
	return date
}

// dated keeps the date of the last response. client-go cancels requests through
// WrappedRoundTripper.
type dated struct {
	http.RoundTripper
	last *atomic.Value
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		d.last.Store(response.Header.Get("Date"))
	}
	return response, err
}

func (d dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (c *cluster) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "the kubeconfig file (default $KUBECONFIG, or ~/.kube/config)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	cobra.CheckErr(root.RegisterFlagCompletionFunc(clientcmd.FlagContext, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := c.config().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}))
	cobra.CheckErr(root.RegisterFlagCompletionFunc(clientcmd.FlagNamespace, c.complete("namespaces", anyNumber)))
}

func (c *cluster) config() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

var (
	coreScheme = func() *runtime.Scheme {
		scheme := runtime.NewScheme()
		utilruntime.Must(v1.AddToScheme(scheme))
		return scheme
	}()
	parameters = runtime.NewParameterCodec(coreScheme)
)

// connect makes the client from the flags and the kubeconfig. It sends nothing.
func (c *cluster) connect() error {
	config, err := c.config().ClientConfig()
	if err != nil {
		return err
	}
	if c.namespace, _, err = c.config().Namespace(); err != nil {
		return err
	}
	c.limit = cmp.Or(config.Timeout, proxyLimit)
	config.GroupVersion, config.APIPath = &v1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(coreScheme).WithoutConversion()
	config.UserAgent = pluginName
	config.WarningHandler = rest.NoWarnings{} // It would log in the middle of a table.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, &c.lastDate} })
	c.Interface, err = rest.RESTClientFor(config)
	return err
}

// proxyLimit is the time limit of proxy without --request-timeout. A node that does not answer
// would otherwise take minutes.
const proxyLimit = 30 * time.Second

// proxy reads a path of the node's kubelet through the API server. Errors name both.
func (c *cluster) proxy(ctx context.Context, node, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var data []byte
	body, err := c.Get().Resource("nodes").Name(node).SubResource("proxy").Suffix(path).Stream(ctx)
	if err == nil {
		defer body.Close()
		data, err = readAll(body, maxMetrics)
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no complete response within %s (--request-timeout)", c.limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nodeSource(node, path), err)
	}
	return data, nil
}

// nodeSource names what a kubelet serves in reports and errors.
func nodeSource(node, path string) string { return "node/" + node + " " + path }

// list lists a resource in chunks. The namespace may be empty.
func (c *cluster) list(ctx context.Context, resource, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	list, _, err := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, parameters).Do(ctx).Get()
	}).List(ctx, options)
	return list, err
}

// anyNumber is the max of complete for flags, and for arguments without a limit.
const anyNumber = math.MaxInt

// complete completes names of a resource in up to max arguments.
func (c *cluster) complete(resource string, max int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second) // Nobody waits longer.
		defer cancel()
		if len(args) >= max || c.connect() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := ""
		if resource == "pods" {
			namespace = c.namespace
		}
		list, err := c.list(ctx, resource, namespace, metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		utilruntime.Must(meta.EachListItem(list, func(object runtime.Object) error {
			if accessor, err := meta.Accessor(object); err == nil && !slices.Contains(args, accessor.GetName()) {
				names = append(names, accessor.GetName())
			}
			return nil
		}))
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// newVersionCommand returns the command version of a root command.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), "crashloop "+cmd.Root().Version+"\n")
			return err
		},
	}
}
