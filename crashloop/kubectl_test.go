// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// pluginNow is the time in the tests of the plugin.
var pluginNow = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fakeAPI is an API server. It answers a request with the first of the responses for its path,
// and keeps the last one. A path ends in ?watch for a watch.
type fakeAPI struct {
	*httptest.Server
	sync.Mutex
	responses map[string][]any
	requests  []string
}

func newFakeAPI(t *testing.T, responses map[string][]any) *fakeAPI {
	f := &fakeAPI{responses: responses}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", pluginNow.Format(http.TimeFormat))
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if r.URL.Query().Get("watch") != "" {
		path += "?watch"
	}
	f.Lock()
	f.requests = append(f.requests, r.URL.RequestURI())
	responses := f.responses[path]
	if len(responses) > 1 {
		f.responses[path] = responses[1:]
	}
	f.Unlock()
	if len(responses) == 0 {
		responses = []any{apiError(http.StatusNotFound, metav1.StatusReasonNotFound, path+" not found")}
	}
	switch response := responses[0].(type) {
	case http.HandlerFunc:
		response(w, r)
	case string:
		fmt.Fprint(w, response)
	case metav1.Status:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(response.Code))
		json.NewEncoder(w).Encode(response)
	case []metav1.WatchEvent:
		w.Header().Set("Content-Type", "application/json")
		for _, e := range response {
			json.NewEncoder(w).Encode(e)
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(response)
	}
}

// requested returns the requests, with their parameters.
func (f *fakeAPI) requested() []string {
	f.Lock()
	defer f.Unlock()
	return f.requests
}

func apiError(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

// run runs the plugin with this API server.
func (f *fakeAPI) run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errs bytes.Buffer
	status = execute(newPluginCommand(func() time.Time { return pluginNow }), append(args, "--server", f.URL), strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// crashing returns a pod whose container exited ten seconds ago and waits.
func crashing(t *testing.T, name, delay string, restarts int) v1.Pod {
	t.Helper()
	pod := v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict(fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default, uid: %[1]s, resourceVersion: "11", creationTimestamp: "2026-01-01T11:30:00Z"}
spec: {nodeName: "n", containers: [{name: main}]}
status:
  phase: Running
  containerStatuses:
  - name: main
    restartCount: %[2]d
    state: {waiting: {reason: CrashLoopBackOff, message: back-off %[3]s restarting failed container=main pod=%[1]s_default(u)}}
    lastState: {terminated: {exitCode: 3, startedAt: "2026-01-01T11:59:48Z", finishedAt: "2026-01-01T11:59:50Z"}}
`, name, restarts, delay), &pod))
	return pod
}

func running(pod v1.Pod) v1.Pod {
	s := &pod.Status.ContainerStatuses[0]
	s.RestartCount++
	s.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(pluginNow)}}
	return pod
}

func podList(version string, pods ...v1.Pod) v1.PodList {
	return v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: pods}
}

func noEvents() v1.EventList {
	return v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}}
}

const (
	podsPath   = "namespaces/default/pods"
	eventsPath = "namespaces/default/events"
)

func TestPluginTop(t *testing.T) {
	// The times of the API are local after decoding. Those for scripts are not.
	local := time.Local
	time.Local = time.FixedZone("", 3600)
	t.Cleanup(func() { time.Local = local })
	slow := crashing(t, "slow", "40s", 4)
	quick := crashing(t, "quick", "20s", 3)
	old := crashing(t, "old", "5s", 40)
	old.CreationTimestamp = metav1.NewTime(pluginNow.Add(-5 * time.Hour))
	lists := func() map[string][]any {
		return map[string][]any{
			podsPath: {podList("10", slow, running(quick), old)}, "pods": {podList("10", slow)},
			eventsPath: {noEvents()}, "events": {noEvents()},
		}
	}
	tests := []struct {
		name, args, want, stderr string
		status                   int
		request                  string
	}{
		{"table", "top", `POD    CONTAINER  EXIT  ATTEMPT  STATE             WAITS UNTIL        RESTARTS(1H)
old    main       3     41       CrashLoopBackOff  11:59:55 (5s ago)  >=1
slow   main       3     5        CrashLoopBackOff  12:00:30 (in 30s)  4
quick  main       3     4        Running           -                  4
`, "", exitSucceeded, "/api/v1/namespaces/default/pods?limit=500"},
		{"all namespaces", "top -A --node n -l app=web", `NAMESPACE  POD   CONTAINER  EXIT  ATTEMPT  STATE             WAITS UNTIL        RESTARTS(1H)
default    slow  main       3     5        CrashLoopBackOff  12:00:30 (in 30s)  4
`, "", exitSucceeded, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=app%3Dweb&limit=500"},
		{"one pod", "top slow -o json", `{"namespace":"default","pod":"slow","container":"main","exitCode":3,"attempt":5,"state":"CrashLoopBackOff","delaySeconds":40,"waitsUntil":"2026-01-01T12:00:30Z","restartsLastHour":4}
`, "", exitSucceeded, "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dslow&limit=500"},
		{"two pods", "top slow old -o json", `{"namespace":"default","pod":"old","container":"main","exitCode":3,"attempt":41,"state":"CrashLoopBackOff","delaySeconds":5,"waitsUntil":"2026-01-01T11:59:55Z","restartsLastHour":1,"atLeast":true}
{"namespace":"default","pod":"slow","container":"main","exitCode":3,"attempt":5,"state":"CrashLoopBackOff","delaySeconds":40,"waitsUntil":"2026-01-01T12:00:30Z","restartsLastHour":4}
`, "", exitSucceeded, ""},
		{"a pod that does not exist", "top slow none", "", "error: namespace default has no pod \"none\"\n", exitFailed, ""},
		{"names and all namespaces", "top -A slow", "", "error: names of pods cannot be combined with --all-namespaces or --selector\nSee 'kubectl crashloop top --help'.\n", exitUsage, ""},
		{"names and a selector", "top -l a=b slow", "", "error: names of pods cannot be combined with --all-namespaces or --selector\nSee 'kubectl crashloop top --help'.\n", exitUsage, ""},
		{"an unknown format", "top -o wide", "", "error: no output format \"wide\": use json, table\nSee 'kubectl crashloop top --help'.\n", exitUsage, ""},
		{"another namespace", "top -n shop", "", "error: namespaces/shop/events not found\n", exitFailed, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			api := newFakeAPI(t, lists())
			status, stdout, stderr := api.run(t, strings.Fields(tc.args)...)
			require.Equal(t, tc.stderr, stderr)
			require.Equal(t, tc.want, stdout)
			require.Equal(t, tc.status, status)
			if tc.request != "" {
				require.Contains(t, api.requested(), tc.request)
			}
		})
	}

	t.Run("nothing waits", func(t *testing.T) {
		status, stdout, stderr := newFakeAPI(t, map[string][]any{podsPath: {podList("10")}, eventsPath: {noEvents()}}).run(t, "top")
		require.Equal(t, exitSucceeded, status)
		require.Empty(t, stdout)
		require.Equal(t, "No container waits for a restart or restarted in the last hour.\n", stderr)
	})
	t.Run("events are forbidden", func(t *testing.T) {
		responses := lists()
		responses[eventsPath] = []any{apiError(http.StatusForbidden, metav1.StatusReasonForbidden, `events is forbidden: User "bob" cannot list resource "events"`)}
		status, stdout, stderr := newFakeAPI(t, responses).run(t, "top", "-o", "json")
		require.Equal(t, exitSucceeded, status)
		require.Equal(t, 3, strings.Count(stdout, "\n"))
		require.Equal(t, `{"severity":"warning","detail":"fewer restarts are counted: events is forbidden: User \"bob\" cannot list resource \"events\""}`+"\n", stderr)
	})
	t.Run("the list comes in chunks", func(t *testing.T) {
		all := make([]v1.Pod, 1001)
		for i := range all {
			all[i] = crashing(t, fmt.Sprintf("pod-%04d", i), "40s", 4)
		}
		// A list in chunks has another type.
		events := []v1.EventList{noEvents(), noEvents()}
		for i := range events {
			events[i].Items = []v1.Event{{
				InvolvedObject: v1.ObjectReference{UID: "pod-1000", FieldPath: "spec.containers{main}"}, Reason: "Started",
				Count: 1, FirstTimestamp: metav1.NewTime(pluginNow.Add(-time.Minute)),
			}}
		}
		events[0].Continue = "c"
		all[1000].CreationTimestamp = metav1.NewTime(pluginNow.Add(-5 * time.Hour))
		first, second, third := podList("10", all[:500]...), podList("10", all[500:1000]...), podList("10", all[1000:]...)
		first.Continue, second.Continue = "a", "b"
		api := newFakeAPI(t, map[string][]any{podsPath: {first, second, third}, eventsPath: {events[0], events[1]}})
		_, stdout, _ := api.run(t, "top", "-o", "json")
		require.Contains(t, stdout, `"restartsLastHour":2,"atLeast":true`)
		require.Equal(t, 1001, strings.Count(stdout, "\n"))
		require.Contains(t, api.requested(), "/api/v1/namespaces/default/pods?continue=b&limit=500")
	})
}

func watchEvent(t *testing.T, kind string, object any) metav1.WatchEvent {
	t.Helper()
	data, err := json.Marshal(object)
	require.NoError(t, err)
	e := metav1.WatchEvent{Type: kind}
	e.Object.Raw = data
	return e
}

// A watch goes on where the one before it ended. If the server no longer has that version, the
// pods are listed again.
func TestPluginTopWatch(t *testing.T) {
	web, job, newer := crashing(t, "web", "20s", 3), crashing(t, "job", "40s", 4), crashing(t, "new", "10s", 1)
	again := running(*web.DeepCopy())
	again.ResourceVersion = "12"
	unchanged := *again.DeepCopy()
	unchanged.ResourceVersion, unchanged.Labels = "13", map[string]string{"a": "b"}
	bookmark := v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "14"}}
	expired := apiError(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
	responses := map[string][]any{
		eventsPath: {noEvents()},
		podsPath:   {podList("10", web, job), podList("20", unchanged)},
		podsPath + "?watch": {
			[]metav1.WatchEvent{watchEvent(t, "MODIFIED", again), watchEvent(t, "MODIFIED", unchanged), watchEvent(t, "BOOKMARK", bookmark)},
			[]metav1.WatchEvent{watchEvent(t, "ERROR", expired)},
			[]metav1.WatchEvent{watchEvent(t, "ADDED", newer), watchEvent(t, "DELETED", newer)},
			apiError(http.StatusForbidden, metav1.StatusReasonForbidden, `pods is forbidden: User "bob" cannot watch resource "pods"`),
		},
	}
	api := newFakeAPI(t, responses)
	status, stdout, stderr := api.run(t, "top", "-w")
	require.Equal(t, "error: pods is forbidden: User \"bob\" cannot watch resource \"pods\"\n", stderr)
	require.Equal(t, exitFailed, status)
	require.Equal(t, `POD  CONTAINER  EXIT  ATTEMPT  STATE             WAITS UNTIL          RESTARTS(1H)
web  main       3     4        CrashLoopBackOff  12:00:10 (in 10s)    3
job  main       3     5        CrashLoopBackOff  12:00:30 (in 30s)    4
web  main       3     4        Running           -                    4
job  main       3     4        Deleted           -                    4
new  main       3     2        CrashLoopBackOff  12:00:00 (in 0s)     1
new  main       3     1        Deleted           -                    1
`, stdout)
	var versions []string
	for _, request := range api.requested() {
		if _, version, ok := strings.Cut(request, "&resourceVersion="); ok {
			version, _, _ = strings.Cut(version, "&")
			versions = append(versions, version)
		}
	}
	require.Equal(t, []string{"10", "14", "20", "11"}, versions)
}

// A container keeps its row until its pod is gone, and a pod comes after one of that name that was
// removed while the watch had a gap.
func TestPluginTopWatchDeletion(t *testing.T) {
	web, job := crashing(t, "web", "10s", 0), crashing(t, "job", "40s", 4)
	terminated := *web.DeepCopy()
	terminated.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: web.Status.ContainerStatuses[0].LastTerminationState.Terminated}
	successor := crashing(t, "job", "10s", 1)
	successor.UID = "successor"
	api := newFakeAPI(t, map[string][]any{
		eventsPath: {noEvents()},
		podsPath:   {podList("10", web, job), podList("20", successor)},
		podsPath + "?watch": {
			[]metav1.WatchEvent{watchEvent(t, "MODIFIED", terminated), watchEvent(t, "DELETED", terminated)},
			apiError(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"),
			apiError(http.StatusForbidden, metav1.StatusReasonForbidden, "enough"),
		},
	})
	_, stdout, _ := api.run(t, "top", "-w")
	require.Equal(t, `POD  CONTAINER  EXIT  ATTEMPT  STATE             WAITS UNTIL          RESTARTS(1H)
web  main       3     1        CrashLoopBackOff  12:00:00 (in 0s)     0
job  main       3     5        CrashLoopBackOff  12:00:30 (in 30s)    4
web  main       3     0        Terminated        -                    0
web  main       3     0        Deleted           -                    0
job  main       3     4        Deleted           -                    4
job  main       3     2        CrashLoopBackOff  12:00:00 (in 0s)     1
`, stdout)
}

// node returns the responses of the kubelet of node n.
func node(t *testing.T, version, config string) map[string][]any {
	t.Helper()
	metrics, err := os.ReadFile("testdata/status/node.prom")
	require.NoError(t, err)
	return map[string][]any{
		"nodes/n/proxy/metrics": {string(metrics) + `kubernetes_build_info{build_date="",git_version="` + version + `",major="1"} 1` + "\n"},
		"nodes/n/proxy/configz": {`{"kubeletconfig":{` + config + `}}`},
	}
}

const fourSeconds = `"crashLoopBackOff":{"maxContainerRestartPeriod":"4s"}`

func TestPluginNode(t *testing.T) {
	t.Run("status", func(t *testing.T) {
		status, stdout, stderr := newFakeAPI(t, node(t, "v1.37.1", "")).run(t, "status", "n")
		require.Equal(t, exitSucceeded, status, stderr)
		golden, err := os.ReadFile("testdata/status/node.golden")
		require.NoError(t, err)
		require.Equal(t, strings.Replace(string(golden), "node.prom", "node/n metrics", 1), stdout)
	})
	checks := []struct {
		name, version, config string
		want                  []string
	}{
		{"the maximum of the node", "v1.37.1+kubelet-backoff", fourSeconds, []string{"maximum  4s  maxContainerRestartPeriod in node/n configz", "delays   0s, 4s, 4s …"}},
		{"a release in which the gate is off", "v1.34.2", fourSeconds, []string{"KubeletCrashLoopBackOffMax          ALPHA  false  default", "maximum  300s", "crashLoopBackOff.maxContainerRestartPeriod"}},
		{"the gate is set", "v1.34.2", `"featureGates":{"KubeletCrashLoopBackOffMax":true},` + fourSeconds, []string{"ALPHA  true   node/n configz", "maximum  4s"}},
	}
	for _, tc := range checks {
		t.Run(tc.name, func(t *testing.T) {
			status, stdout, stderr := newFakeAPI(t, node(t, tc.version, tc.config)).run(t, "check", "n")
			require.Equal(t, exitSucceeded, status, stderr)
			for _, want := range tc.want {
				require.Contains(t, stdout, want)
			}
			require.NotContains(t, stdout, "stock kubelet")
		})
	}
	t.Run("a stock kubelet", func(t *testing.T) {
		responses := node(t, "", "")
		responses["nodes/n/proxy/metrics"] = []any{"# TYPE kubernetes_build_info gauge\nkubernetes_build_info{git_version=\"v1.37.1\"} 1\n"}
		status, stdout, _ := newFakeAPI(t, responses).run(t, "check", "n", "-o", "json")
		require.Equal(t, exitSucceeded, status)
		require.Contains(t, stdout, "probably a stock kubelet")
	})

	failures := []struct {
		name, args string
		response   any
		status     int
		want       string
	}{
		{"no node", "status nowhere", "", exitFailed, "node/nowhere metrics: nodes/nowhere/proxy/metrics not found"},
		{"forbidden", "check n", apiError(http.StatusForbidden, metav1.StatusReasonForbidden, `User "bob" cannot get resource "nodes/proxy"`), exitFailed, `node/n configz: User "bob" cannot get resource "nodes/proxy"`},
		{"the node does not answer", "check n", apiError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "error trying to reach service: dial tcp: connection refused"), exitFailed, "node/n configz: error trying to reach service: dial tcp: connection refused"},
		{"the node hangs", "check n --request-timeout 10ms", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), exitFailed, "error: node/n configz: no complete response within 10ms (--request-timeout)"},
		{"no configuration", "check n", "<html>", exitRefused, "node/n configz: invalid character"},
		{"a terminal would act on it", "check n", apiError(http.StatusNotFound, metav1.StatusReasonNotFound, "no \x1b[31m"), exitFailed, `no \x1b[31m`},
		{"no name of a node", "check ../pods", "", exitFailed, `invalid resource name "../pods"`},
		{"no argument", "status", "", exitUsage, "accepts 1 arg(s), received 0"},
		{"too many arguments", "check a b", "", exitUsage, "accepts 1 arg(s), received 2"},
	}
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			responses := node(t, "v1.37.1", "")
			responses["nodes/n/proxy/configz"] = []any{tc.response}
			status, stdout, stderr := newFakeAPI(t, responses).run(t, strings.Fields(tc.args)...)
			require.Equal(t, tc.status, status, stdout)
			require.Contains(t, stderr+stdout, tc.want)
			output := strings.ReplaceAll(stderr+stdout, "\n", "")
			require.Equal(t, output, text.Printable(output))
		})
	}
}

func TestPluginPlan(t *testing.T) {
	pod, pending := crashing(t, "web", "20s", 3), crashing(t, "pending", "20s", 3)
	pending.Spec.NodeName = ""
	at := []string{"--at", "2026-01-01T12:00:00Z", "--for", "30s"}
	responses := func() map[string][]any {
		responses := node(t, "v1.37.1", `"featureGates":{"KubeletDelayFirstContainerRestart":true}`)
		responses[podsPath+"/web"], responses[podsPath+"/pending"] = []any{pod}, []any{pending}
		return responses
	}
	status, stdout, stderr := newFakeAPI(t, responses()).run(t, append(at, "plan", "web")...)
	require.Equal(t, exitSucceeded, status, stderr)
	require.Equal(t, `Pod default/web in node/n: next restart at 12:00:10, in 10s
assumed: --exit main=3@2s
TIME      AFTER  CONTAINER  EVENT
12:00:00  0s     main       waits until 12:00:10, back-off 20s
12:00:10  10s    main       starts, restart 4
12:00:12  12s    main       exits with code 3 after 2s
12:00:12  12s    main       waits until 12:00:52, back-off 40s
main: 1 restart in 30s, down for 93.3% of the time
`, stdout)

	// The delay of the status is not one of this curve.
	api := newFakeAPI(t, responses())
	status, _, stderr = api.run(t, append(at, "plan", "web", "--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=true")...)
	require.Equal(t, exitRefused, status)
	require.Contains(t, stderr, `node/n: Pod default/web: status.containerStatuses[0].state.waiting.message: Invalid value: "back-off 20s"`)
	require.NotContains(t, strings.Join(api.requested(), " "), "/nodes/", "flags replace the configuration of the node")

	status, _, stderr = newFakeAPI(t, responses()).run(t, append(at, "plan", "pending")...)
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: pod default/pending has no node yet: pass the configuration of a node with --config, --config-dir, --curve or --feature-gates\n", stderr)
}

// kubectl completes the arguments of a plugin with a program of this name.
func TestPluginCompletes(t *testing.T) {
	named := func(names ...string) metav1.PartialObjectMetadataList {
		list := metav1.PartialObjectMetadataList{}
		for _, name := range names {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
		}
		return list
	}
	nodes, namespaces := named("n1", "n2"), named("default", "shop")
	nodes.TypeMeta, namespaces.TypeMeta = metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}
	api := newFakeAPI(t, map[string][]any{
		podsPath: {podList("1", crashing(t, "web", "20s", 3), crashing(t, "job", "20s", 3))}, "nodes": {nodes}, "namespaces": {namespaces},
	})
	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{current-context: a, contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: d}}],
clusters: [{name: c, cluster: {server: %q}}, {name: d, cluster: {server: "http://127.0.0.1:1"}}]}`, api.URL), 0o600))
	t.Setenv("KUBECONFIG", config)
	for _, tc := range []struct {
		args, want string
	}{
		{"top |", "web job"},
		{"top web |", "job"},
		{"plan web |", ""},
		{"status |", "n1 n2"},
		{"check --output |", "json table yaml"},
		{"top --node |", "n1 n2"},
		{"top -n |", "default shop"},
		{"plan web -n |", "default shop"},
		{"top --context |", "a b"},
		{"top --context b |", ""},
		{"status --kubeconfig /none |", ""},
	} {
		root, args := newRootFor("/bin/kubectl_complete-crashloop", append(strings.Fields(strings.TrimSuffix(tc.args, "|")), ""))
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitSucceeded, execute(root, args, nil, &stdout, &stderr), tc.args)
		completions, directive, _ := strings.Cut(stdout.String(), ":")
		require.Equal(t, tc.want, strings.Join(strings.Fields(completions), " "), tc.args)
		require.Equal(t, "4\n", directive, "no files: %s", tc.args)
	}
}

func TestPluginNames(t *testing.T) {
	for program, want := range map[string]string{
		"crashloop": "crashloop", "/usr/bin/kubectl-crashloop": "kubectl crashloop", "kubectl-crashloop.exe": "kubectl crashloop", "kubectl-crashloop2": "crashloop",
	} {
		root, args := newRootFor(program, []string{"version"})
		require.Equal(t, want, root.DisplayName(), program)
		var stdout bytes.Buffer
		require.Equal(t, exitSucceeded, execute(root, args, nil, &stdout, &stdout), program)
		require.Regexp(t, `^crashloop \S+\n$`, stdout.String())
	}
}
