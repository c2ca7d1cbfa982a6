// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kinds of events.
const (
	Started = "start"
	Exited  = "exit"
)

// Event is an event of an instance of a container.
type Event struct {
	At        time.Time `json:"at"`
	UID       string    `json:"uid"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	// Attempt is the number that the kubelet assigned to the instance.
	Attempt uint32 `json:"attempt"`
	What    string `json:"what"`
	Code    int32  `json:"code,omitempty"`
	// Told and Asked are of a start: when a ContainerStatus first told the kubelet that the
	// instance before had exited, if one did, and when the kubelet asked for this instance.
	Told  time.Time `json:"told,omitzero"`
	Asked time.Time `json:"asked,omitzero"`
}

// Calls has the number of calls of a method, and their total time in seconds.
type Calls struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
}

func (r *Runtime) record(c *container, at time.Time, what string) {
	labels := c.config.GetLabels()
	e := Event{
		At: at, UID: labels[labelUID], Pod: labels[labelPod], Container: labels[labelContainer], Attempt: c.config.GetMetadata().GetAttempt(),
		What: what, Code: c.code,
	}
	if what == Started {
		e.Told, e.Asked = c.toldBefore, c.asked
	}
	r.journal = append(r.journal, e)
}

// Journal returns the events so far, without the first ones, as many as after says.
func (r *Runtime) Journal(after int) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Events in the journal do not change, so the slice needs no copy.
	return r.journal[min(max(after, 0), len(r.journal)):]
}

// Calls returns how often each method was called so far.
func (r *Runtime) Calls() map[string]Calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// Instances returns the number of instances that were created of each container, by pod UID
// and container name: UID/NAME. An instance that was never started has no event.
func (r *Runtime) Instances() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.instances)
}

// SetDependency makes a dependency present or absent. When it becomes absent, every
// container that needs it exits at once.
func (r *Runtime) SetDependency(name string, present bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if present {
		delete(r.away, name)
		return
	}
	r.away[name] = true
	for _, c := range r.containers {
		if c.life.Needs == name {
			r.exit(c, c.life.Code)
		}
	}
}

func (r *Runtime) count(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := handler(ctx, req)
	method := path.Base(info.FullMethod)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[method]
	r.calls[method] = Calls{c.Count + 1, c.Seconds + time.Since(began).Seconds()}
	return answer, err
}

// handler serves the journal and the calls to other processes, and lets them set
// dependencies.
func (r *Runtime) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, req *http.Request) {
		after, _ := strconv.Atoi(req.FormValue("after"))
		answer(w, r.Journal(after))
	})
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Calls()) })
	mux.HandleFunc("PUT /dependency", func(_ http.ResponseWriter, req *http.Request) {
		r.SetDependency(req.FormValue("name"), req.FormValue("present") == "true")
	})
	return mux
}

// Main runs a runtime as a program. It always returns an error.
func Main(args []string) error {
	var (
		o                        Options
		listen, control, plugins string
	)
	f := flag.NewFlagSet("memcri", flag.ContinueOnError)
	f.StringVar(&listen, "listen", "", "the `socket` of the runtime")
	f.StringVar(&control, "control", "", "the `socket` for a Control")
	o.Flags(f)
	f.StringVar(&o.Dir, "dir", "/", "a `folder` of the file system that it reports as its own")
	f.StringVar(&o.Network, "network", "", "the `file` with the configuration of the sandboxes' network")
	f.StringVar(&plugins, "plugins", "", "the `folders` of its plugins")
	if err := f.Parse(args); err != nil {
		return err
	}
	r := New(o)
	if o.Network != "" {
		var err error
		if r.network, err = newNetwork(o.Network, filepath.SplitList(plugins), filepath.Join(o.Dir, "netns")); err != nil {
			return err
		}
	}
	cri, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	own, err := net.Listen("unix", control)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- r.Register().Serve(cri) }()
	go func() { failed <- http.Serve(own, r.handler()) }()
	return errors.Join(errors.New("memcri ended"), <-failed)
}

// Flags defines the flags for the durations of calls. With the defaults the runtime does
// not limit a kubelet: 16 starts at once are 640 per second.
func (o *Options) Flags(f *flag.FlagSet) {
	f.DurationVar(&o.Sandbox, "runtime-sandbox", 40*time.Millisecond, "the `time` that the runtime takes to make a sandbox")
	f.DurationVar(&o.Create, "runtime-create", 5*time.Millisecond, "the `time` that it takes to create a container")
	f.DurationVar(&o.Start, "runtime-start", 20*time.Millisecond, "the `time` that it takes to start a container")
	f.DurationVar(&o.Stop, "runtime-stop", 10*time.Millisecond, "the `time` that it takes to stop a container or a sandbox")
	f.IntVar(&o.Slots, "runtime-slots", 16, "how `many` of these run at once; 0 is no limit")
}

// String describes the durations of calls.
func (o Options) String() string {
	return fmt.Sprintf("%v for a sandbox, %v to create a container, %v to start it, %v to stop; at most %d of these at once",
		o.Sandbox, o.Create, o.Start, o.Stop, o.Slots)
}

// Args returns the flags of Flags that give these options.
func (o Options) Args() []string {
	return []string{
		"--runtime-sandbox=" + o.Sandbox.String(), "--runtime-create=" + o.Create.String(), "--runtime-start=" + o.Start.String(),
		"--runtime-stop=" + o.Stop.String(), fmt.Sprintf("--runtime-slots=%d", o.Slots),
	}
}

// Control is a client of a runtime in another process.
type Control struct{ client *http.Client }

// NewControl returns a client of the runtime with this control socket.
func NewControl(socket string) *Control {
	return &Control{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

func (c *Control) do(ctx context.Context, method, target string, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://memcri"+target, nil)
	if err != nil {
		return err
	}
	answer, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, target, answer.Status)
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(v)
}

// Journal is Runtime.Journal.
func (c *Control) Journal(ctx context.Context, after int) (events []Event, err error) {
	return events, c.do(ctx, http.MethodGet, fmt.Sprintf("/journal?after=%d", after), &events)
}

// Calls is Runtime.Calls.
func (c *Control) Calls(ctx context.Context) (calls map[string]Calls, err error) {
	return calls, c.do(ctx, http.MethodGet, "/calls", &calls)
}

// SetDependency is Runtime.SetDependency.
func (c *Control) SetDependency(ctx context.Context, name string, present bool) error {
	query := url.Values{"name": {name}, "present": {strconv.FormatBool(present)}}
	return c.do(ctx, http.MethodPut, "/dependency?"+query.Encode(), nil)
}

var (
	_ runtimeapi.RuntimeServiceServer = &Runtime{}
	_ runtimeapi.ImageServiceServer   = &Runtime{}
)
