// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/top"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// topper prints the containers that wait.
type topper struct {
	*cluster
	names          []string
	all, watch     bool
	selector, node string
	output         string
	now            func() time.Time
	stdout, stderr io.Writer

	history top.History
	// shown are the rows of each pod as they were printed last.
	shown map[types.UID][]top.Row
	// listed is true after the first list, widths are those of the columns.
	listed bool
	widths []int
}

func newPluginTop(c *cluster, now func() time.Time) *cobra.Command {
	t := &topper{cluster: c, now: now, shown: map[types.UID][]top.Row{}}
	cmd := &cobra.Command{
		Use:   "top [POD...]",
		Short: "Print the containers that wait for a restart, and until when",
		Long: `Print the containers that wait for a restart, and until when, and those that
restarted in the last hour. Those that restart next come first. With --watch, a
line follows for each change.

EXIT is the code of the last exit. ATTEMPT is the restart count, plus one for a
container that waits: the number of the restart that it waits for. WAITS UNTIL is
the time of the exit plus the delay in the status, or 'within DELAY' if the status
has no such time. A time in the past means that the kubelet restarts late.

RESTARTS(1H) is exact after an hour of --watch without a gap, and for a pod that is
younger than an hour and not static. Otherwise it counts the kubelet's events and is a
lower bound such as >=12, because a kubelet drops events when a pod has many.

Exit status: 0 printed, even if there are no such containers; 1 the API server
could not be asked; 2 wrong usage; 141 nobody reads the output any more.`,
		Example: `  # all containers of a node that wait, and their changes
  kubectl crashloop top -A --node NODE --watch

  # for a script: an object per line
  kubectl crashloop top -A -o json`,
		ValidArgsFunction: c.complete("pods", anyNumber),
		RunE: func(cmd *cobra.Command, names []string) error {
			if len(names) > 0 && (t.all || t.selector != "") {
				return errors.New("names of pods cannot be combined with --all-namespaces or --selector")
			}
			if err := c.connect(); err != nil {
				return failed(err)
			}
			if t.all {
				c.namespace = ""
			}
			t.names, t.stdout, t.stderr = names, cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() { // The next change, and with it a SIGPIPE, may come late.
				select {
				case <-unread(t.stdout):
					cancel()
				case <-ctx.Done():
				}
			}()
			err := t.run(ctx)
			if ctx.Err() != nil {
				return exitError(exitUnread)
			}
			return failed(err)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&t.all, "all-namespaces", "A", false, "the pods of all namespaces")
	flags.StringVarP(&t.selector, "selector", "l", "", "a label selector, such as app=web")
	flags.StringVar(&t.node, "node", "", "only the pods of this node")
	flags.BoolVarP(&t.watch, "watch", "w", false, "print a line for each change, until interrupted")
	usage.Output(cmd, &t.output, statusFormats)
	usage.Name(cmd, map[string]string{"selector": "SELECTOR", "node": "NODE"})
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("node", c.complete("nodes", anyNumber)))
	return cmd
}

func (t *topper) run(ctx context.Context) error {
	version, err := t.relist(ctx)
	if err != nil || !t.watch {
		return err
	}
	for {
		// A watch ends after some minutes, and goes on from the last version.
		version, err = t.follow(ctx, version)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			version, err = t.relist(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (t *topper) options() metav1.ListOptions {
	selector := fields.Set{}
	if len(t.names) == 1 {
		selector["metadata.name"] = t.names[0]
	}
	if t.node != "" {
		selector["spec.nodeName"] = t.node
	}
	return metav1.ListOptions{LabelSelector: t.selector, FieldSelector: selector.String()}
}

// relist lists the events and the pods, and prints what has changed. It forgets what the watch has
// seen, because it may have missed restarts. It returns the version from which to watch.
func (t *topper) relist(ctx context.Context) (version string, err error) {
	events, err := t.starts(ctx)
	if err != nil {
		return "", err
	}
	t.history = top.NewHistory(events)
	object, err := t.list(ctx, "pods", t.namespace, t.options())
	if err != nil {
		return "", err
	}
	var rows, removed []top.Row
	missing, found := slices.Clone(t.names), map[types.UID]bool{}
	utilruntime.Must(meta.EachListItem(object, func(item runtime.Object) error {
		pod := item.(*v1.Pod)
		found[top.UID(pod)] = true
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == pod.Name })
		rows = append(rows, t.update(pod)...)
		return nil
	}))
	for pod := range t.shown {
		if !found[pod] {
			removed = append(removed, t.remove(pod)...)
		}
	}
	t.history.Retain(func(pod types.UID) bool { return found[pod] })
	if !t.listed && len(missing) > 0 {
		return "", fmt.Errorf("namespace %s has no pod %q", t.namespace, missing[0])
	}
	if !t.listed && len(rows) == 0 {
		fmt.Fprintln(t.stderr, "No container waits for a restart or restarted in the last hour.")
	}
	t.listed = true
	top.Sort(rows)
	// A new pod may have the name of a removed one.
	return object.(metav1.ListInterface).GetResourceVersion(), t.print(append(removed, rows...))
}

// starts lists the events of starts. It returns none, with one warning, if the user may not list them.
func (t *topper) starts(ctx context.Context) (events []v1.Event, err error) {
	selector := fields.Set{"involvedObject.kind": "Pod", "reason": top.StartedReason}
	if len(t.names) == 1 {
		selector["involvedObject.name"] = t.names[0]
	}
	list, err := t.list(ctx, "events", t.namespace, metav1.ListOptions{FieldSelector: selector.String()})
	if apierrors.IsForbidden(err) {
		if !t.listed {
			issueWriter{t.stderr, t.output}.write("warning", newIssue("", "", "", "fewer restarts are counted: "+err.Error()))
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	utilruntime.Must(meta.EachListItem(list, func(item runtime.Object) error {
		events = append(events, *item.(*v1.Event))
		return nil
	}))
	return events, nil
}

// follow watches the pods from a version until the watch ends, and prints what changes. It
// returns the version that it has reached.
func (t *topper) follow(ctx context.Context, version string) (string, error) {
	options := t.options()
	options.Watch, options.ResourceVersion, options.AllowWatchBookmarks = true, version, true
	w, err := t.Get().NamespaceIfScoped(t.namespace, t.namespace != "").Resource("pods").VersionedParams(&options, parameters).Watch(ctx)
	if err != nil {
		return version, err
	}
	defer w.Stop()
	// A server that ends every watch at once must not get a flood of them.
	pause := time.Second
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return version, apierrors.FromObject(e.Object)
		}
		pod, ok := e.Object.(*v1.Pod)
		if !ok {
			continue
		}
		version, pause = pod.ResourceVersion, 0
		var rows []top.Row
		switch e.Type {
		case watch.Added, watch.Modified:
			rows = t.update(pod)
		case watch.Deleted:
			t.update(pod) // Its numbers may be older than an hour.
			rows = t.remove(top.UID(pod))
			t.history.Retain(func(other types.UID) bool { return other != top.UID(pod) })
		}
		if err := t.print(rows); err != nil {
			return version, err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return version, ctx.Err()
}

// update returns those rows of a pod that differ from what was printed. A container that has a row
// keeps it.
func (t *topper) update(pod *v1.Pod) (changed []top.Row) {
	if len(t.names) > 0 && !slices.Contains(t.names, pod.Name) {
		return nil
	}
	uid := top.UID(pod)
	var rows []top.Row
	for _, r := range t.history.Rows(pod, t.now()) {
		old := slices.IndexFunc(t.shown[uid], func(old top.Row) bool { return old.Container == r.Container })
		if old < 0 && !r.Listed() {
			continue
		}
		rows = append(rows, r)
		if old < 0 || !r.Same(t.shown[uid][old]) {
			changed = append(changed, r)
		}
	}
	if len(rows) > 0 {
		t.shown[uid] = rows
	}
	return changed
}

// remove returns the rows of a deleted pod.
func (t *topper) remove(uid types.UID) []top.Row {
	rows := t.shown[uid]
	for i := range rows {
		if rows[i].State == top.StateWaiting {
			rows[i].Attempt--
		}
		rows[i].State, rows[i].WaitsUntil, rows[i].DelaySeconds = top.StateDeleted, nil, 0
	}
	delete(t.shown, uid)
	return rows
}

// print prints rows. Later rows of a table are in the columns of the first ones.
func (t *topper) print(rows []top.Row) error {
	var b bytes.Buffer
	var lines [][]string
	if t.widths == nil && len(rows) > 0 {
		lines = append(lines, []string{"NAMESPACE", "POD", "CONTAINER", "EXIT", "ATTEMPT", "STATE", "WAITS UNTIL", "RESTARTS(1H)"})
		t.widths = make([]int, len(lines[0]))
		if t.watch { // Later rows are wider than these, if no container waits yet.
			t.widths[5], t.widths[6] = len(top.StateWaiting), len("15:04:05 (in 2m39s)")
		}
	}
	for _, r := range rows {
		lines = append(lines, cellsOf(r, t.now()))
		if t.output == outputJSON {
			if err := text.WriteJSON(&b, "", r); err != nil {
				return err
			}
		}
	}
	if t.output == outputTable {
		for _, line := range lines {
			for i, cell := range line {
				t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			}
		}
		for _, line := range lines {
			for i := range line {
				line[i] = fmt.Sprintf("%-*s", t.widths[i], line[i])
			}
			if !t.all {
				line = line[1:]
			}
			b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
		}
	}
	_, err := t.stdout.Write(b.Bytes())
	return err
}

// cellsOf returns the cells of a row in the table.
func cellsOf(r top.Row, now time.Time) []string {
	exit, until, restarts := "-", "-", strconv.Itoa(int(r.RestartsLastHour))
	if r.ExitCode != nil {
		exit = strconv.Itoa(int(*r.ExitCode))
	}
	switch {
	case r.WaitsUntil != nil:
		until = r.WaitsUntil.In(now.Location()).Format(time.TimeOnly)
		if left := r.WaitsUntil.Sub(now).Round(time.Second); left >= 0 {
			until += fmt.Sprintf(" (in %s)", left)
		} else {
			until += fmt.Sprintf(" (%s ago)", -left)
		}
	case r.DelaySeconds > 0:
		until = "within " + text.Seconds(time.Duration(r.DelaySeconds*float64(time.Second)))
	}
	if r.AtLeast {
		restarts = ">=" + restarts
	}
	return []string{text.Cell(r.Namespace), text.Cell(r.Pod), text.Cell(r.Container), exit, strconv.Itoa(int(r.Attempt)), text.Cell(r.State), until, restarts}
}
