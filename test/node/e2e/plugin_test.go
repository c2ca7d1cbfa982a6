// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// metricsPluginScenarios are about the kubectl plugin, which reads the metrics too.
var metricsPluginScenarios = []scenario{
	{"Plugin", func(t *testing.T, e *e2e) {
		if *crashloopFlag == "" {
			skip(t, "there is no -crashloop")
		}
		k := e.newPlugin(t)
		e.useCurve(t, defaultCurve) // Its new kubelet connects to the API server at once.
		crash := e.create(t, alwaysSpec([]v1.Container{sidecar("side", "")}, container("main", "sleep=1s exit=3"), container("other", "")), "crash")
		// Older releases do not restart pods in place.
		var whole *pod
		waiting := "1"
		if actions := e.actions(t); len(actions) > 0 {
			whole = e.create(t, podSpec(nil, triggeringBy(container("main", "sleep=1s exit=42"), actions[0]), container("other", "")), "whole")
			waiting = "3"
		}
		watched := k.watch("top", "--watch")
		// The last delay must be longer than the commands take together.
		restarts := 2
		if *machineFlag {
			restarts = 4
		}
		attempt, delay := restarts+1, defaultCurve.Delay(restarts).Seconds()
		crash.waitsFor("main", int32(restarts))
		if whole != nil {
			whole.waitsFor("other", int32(restarts))
		}

		var rows []topRow
		for line := range strings.Lines(k.run("operator", "top", "-o", "json")) {
			var row topRow
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			rows = append(rows, row)
		}
		i := slices.IndexFunc(rows, func(r topRow) bool { return r.Pod == crash.name && r.Container == "main" })
		require.GreaterOrEqual(t, i, 0, rows)
		main := rows[i]
		require.NotNil(t, main.WaitsUntil)
		assert.Equal(t, topRow{crash.name, "main", 3, attempt, "CrashLoopBackOff", delay, main.WaitsUntil, restarts, false}, main)
		if whole != nil {
			for _, name := range []string{"main", "other"} {
				i := slices.IndexFunc(rows, func(r topRow) bool { return r.Pod == whole.name && r.Container == name })
				require.GreaterOrEqual(t, i, 0, "%s in %v", name, rows)
				assert.Equal(t, delay, rows[i].DelaySeconds, name)
				assert.NotNil(t, rows[i].WaitsUntil, name)
			}
			assert.Contains(t, k.run("operator", "plan", whole.name, "--for", "1m"), "Pod default/plugin-whole in node/"+harness.Name+": next restart at ")
			assert.Contains(t, k.run("operator", "__complete", "top", whole.name, ""), crash.name+"\n")
		}

		until := main.WaitsUntil.Local().Format(time.TimeOnly)
		assert.Regexp(t, `(?m)^POD +CONTAINER +EXIT +ATTEMPT +STATE +WAITS UNTIL +RESTARTS\(1H\)$`, k.run("operator", "top"))
		assert.Regexp(t, fmt.Sprintf(`(?m)^default +plugin-crash +main +3 +%d +CrashLoopBackOff +%s \(in (\d+m)?\d+s\) +%d$`, attempt, until, restarts), k.run("operator", "top", "-A", "--node", harness.Name))
		assert.Contains(t, k.run("operator", "plan", crash.name, "--for", "1m"), "Pod default/plugin-crash in node/"+harness.Name+": next restart at "+until+", in ")
		assert.Regexp(t, `(?m)^RESTARTS in node/backoff-node metrics, since .*\n  waiting +`+waiting+` +containers`, k.run("operator", "status", harness.Name))
		assert.Contains(t, k.run("operator", "check", harness.Name), "delays   0s, 10s, 20s, 40s, 80s, 160s, 300s, 300s … from each exit")
		k.fails("operator", `nodes "nowhere" not found`, "check", "nowhere")
		k.fails("operator", `pods "nothing" not found`, "plan", "nothing")
		k.fails("nobody", `cannot list resource "events" in API group "" in the namespace "default"`, "top")
		k.fails("nobody", `cannot list resource "pods" in API group "" in the namespace "default"`, "top")
		k.fails("nobody", `cannot get resource "nodes/proxy" in API group "" at the cluster scope`, "status", harness.Name)
		assert.Contains(t, k.run("operator", "__complete", "plan", ""), crash.name+"\n")

		// The container does start when top says.
		crash.waitsFor("main", int32(restarts+1))
		seen := e.pods.of(crash.name)
		started := statusOf(seen[len(seen)-1].pod, "main").LastTerminationState.Terminated.StartedAt
		most := 2 * time.Second
		if *machineFlag {
			most = patience // A start alone takes seconds there.
		}
		late := started.Sub(*main.WaitsUntil)
		assert.GreaterOrEqual(t, late, -2*time.Second, "the start before the end of the wait")
		assert.LessOrEqual(t, late, most, "the start after the wait")
		crash.delete(1)
		crash.gone()
		watched.line(fmt.Sprintf(`plugin-crash +main +3 +%d +CrashLoopBackOff +%s \(in (\d+m)?\d+s\) +%d$`, attempt, until, restarts))
		watched.line(fmt.Sprintf(`plugin-crash +main +3 +%d +Running +- +%d$`, attempt, restarts+1))
		watched.line(fmt.Sprintf(`plugin-crash +main +\d+ +\d +Deleted +- +%d$`, restarts+1))

		e.Kubelet.Kill()
		k.fails("operator", "connect: connection refused", "status", harness.Name)
		e.startKubeletWith(t, defaultCurve)
	}},
}

// topRow is a line of the JSON output of top.
type topRow struct {
	Pod, Container    string
	ExitCode, Attempt int
	State             string
	DelaySeconds      float64
	WaitsUntil        *time.Time
	RestartsLastHour  int
	AtLeast           bool
}

// plugin runs the plugin as two users: operator has the roles of deploy/kubectl, nobody has none.
type plugin struct {
	*testing.T
	*e2e
	dir string
}

// newPlugin restarts the API server so that it checks permissions.
func (e *e2e) newPlugin(t *testing.T) plugin {
	k := plugin{t, e, e.Path("plugin")}
	require.NoError(t, os.Mkdir(k.dir, 0o755))
	require.NoError(t, os.Symlink(*crashloopFlag, filepath.Join(k.dir, "kubectl-crashloop")))
	file := filepath.Join(k.dir, "tokens.csv")
	usual := e.api.Args
	args := slices.Clone(usual)
	for i, arg := range args {
		if was, ok := strings.CutPrefix(arg, "--token-auth-file="); ok {
			tokens, err := os.ReadFile(was)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, append(tokens, "operator,operator,operator\nnobody,nobody,nobody\n"...), 0o600))
			args[i] = "--token-auth-file=" + file
		}
		if strings.HasPrefix(arg, "--authorization-mode=") {
			args[i] = "--authorization-mode=Node,RBAC"
		}
	}
	t.Cleanup(func() {
		e.restartAPIServer(t, usual)
		crashKubelet(t, e)
	})
	e.restartAPIServer(t, args)
	k.bindRoles()
	for _, user := range []string{"operator", "nobody"} {
		require.NoError(t, e.api.WriteKubeconfig(filepath.Join(k.dir, user), user))
	}
	return k
}

// bindRoles gives operator the roles that the project's pages show.
func (k plugin) bindRoles() {
	data, err := os.ReadFile("../../deploy/kubectl/rbac.yaml")
	require.NoError(k, err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 1<<10)
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(k, err)
		_, err = k.kube.RbacV1().ClusterRoles().Create(k.ctx, &role, metav1.CreateOptions{})
		require.NoError(k, err)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "operator"}},
		}
		_, err = k.kube.RbacV1().ClusterRoleBindings().Create(k.ctx, binding, metav1.CreateOptions{})
		require.NoError(k, err)
	}
}

func (k plugin) command(user string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.ctx, filepath.Join(k.dir, "kubectl-crashloop"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(k.dir, user))
	return cmd
}

// run runs the plugin and returns its output.
func (k plugin) run(user string, args ...string) string {
	k.Helper()
	cmd := k.command(user, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(k, err, "%s: %s", args, &stderr)
	k.Logf("$ kubectl crashloop %s\n%s", strings.Join(args, " "), stdout)
	return string(stdout)
}

// fails runs the plugin, which must fail with an error.
func (k plugin) fails(user, want string, args ...string) {
	k.Helper()
	output, err := k.command(user, args...).CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(k, err, &exit, args)
	assert.Equal(k, 1, exit.ExitCode(), args)
	assert.Contains(k, string(output), want, args)
	k.Logf("$ kubectl crashloop %s\n%s", strings.Join(args, " "), output)
}

// watched is the output of a command that runs.
type watched struct {
	plugin
	lines chan string
}

// watch runs the plugin until the end of the test.
func (k plugin) watch(args ...string) watched {
	cmd := k.command("operator", args...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(k, err)
	require.NoError(k, cmd.Start())
	k.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w := watched{k, make(chan string, 1000)}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			w.lines <- lines.Text()
		}
		close(w.lines)
	}()
	return w
}

// line waits for a line.
func (w watched) line(pattern string) {
	w.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-w.lines:
			require.True(w, ok, "the watch ended without a line %s", pattern)
			w.Log(line)
			if matched, _ := regexp.MatchString(pattern, line); matched {
				return
			}
		case <-limit:
			require.Fail(w, "no line "+pattern)
		}
	}
}
