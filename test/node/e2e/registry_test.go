// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// pullScenarios have images in a registry that refuses them for some time.
var pullScenarios = []scenario{
	// One image does not exist, for another one the registry fails. Their back-off is not that
	// of the container beside them, in neither direction.
	{"PullsFailBesideACrash", func(t *testing.T, e *e2e) {
		r := e.startRegistry(t)
		r.set(http.StatusInternalServerError, "broken")
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), r.container("absent", v1.PullIfNotPresent, ""), r.container("broken", v1.PullIfNotPresent, "")))
		r.awaitPulls(t, "absent", 3)
		r.awaitPulls(t, "broken", 3)
		r.set(http.StatusOK, "absent", "broken")
		p.event("absent", 1, "start")
		p.event("broken", 1, "start")
		restarts := p.starts("main")
		p.event("main", restarts+3, "start")
		p.assertCurve("main", usual)
		for _, name := range []string{"absent", "broken"} {
			pulls := r.pulls(name)
			// Another pull would be too early if the crashes had changed the image's back-off.
			assert.Len(t, pulls, 4, "pulls of the image of %s", name)
			for i := range pulls[1:] {
				assert.GreaterOrEqual(t, pulls[i+1].at.Sub(pulls[i].at), 10*time.Second<<i-50*time.Millisecond, "from pull %d of the image of %s to the next one", i+1, name)
			}
		}
		for _, s := range p.pods.of(p.name) {
			for _, c := range statuses(s.pod) {
				if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
					assert.Equal(t, c.Name == "main", w.Reason == "CrashLoopBackOff", "container %s waits for the reason %s", c.Name, w.Reason)
				}
			}
		}
		p.assertStarts(map[string]int{"absent": 1, "broken": 1})
	}},

	// A restart of the pod asks the registry as the start of a container does. While the pod
	// waits, nobody asks. If the registry fails, the restart goes on when it works again.
	{"RestartPullsAlways", func(t *testing.T, e *e2e) {
		r := e.startRegistry(t)
		r.set(http.StatusOK, "main", "other")
		trigger := "wait=go exit=42"
		p := e.create(t, podSpec([]v1.Container{sidecar("sidecar1", "")},
			triggering(r.container("main", v1.PullAlways, trigger, trigger, trigger, trigger, "")), r.container("other", v1.PullIfNotPresent, "")))
		for n := range 3 {
			before := p.running()
			p.signal("go")
			p.restarted(restart{before: before, cause: "main"})
			assert.Equal(t, n+2, r.served("main"), "pulls of the image of main after restart %d", n+1)
		}
		before := p.running()
		r.set(http.StatusInternalServerError, "main")
		p.signal("go")
		r.awaitPulls(t, "main", 5)
		p.event("other", 5, "start")
		p.latest("the failed pull", func(now *v1.Pod) error {
			if w := statusOf(now, "main").State.Waiting; w == nil || w.Reason != "ImagePullBackOff" {
				return fmt.Errorf("main: %+v", statusOf(now, "main").State)
			}
			return nil
		})
		assert.Equal(t, v1.ConditionTrue, conditionIn(p.latest("the condition", func(*v1.Pod) error { return nil }), p.condition()).Status, "the condition while the image is missing")
		r.set(http.StatusOK, "main")
		p.restarted(restart{before: before, cause: "main"})
		assert.Equal(t, 5, r.served("main"), "pulls of the image of main after the last restart")
		assert.Equal(t, 1, r.served("other"), "pulls of the image of other")
		p.assertStarts(map[string]int{"main": 5, "other": 5, "sidecar1": 5})
	}},
}

// pulledImage is the image that registries have. It has another ID than ActorImage, because
// a kubelet that has pulled an image lets no pod use it that may not pull.
var pulledImage = harness.Image{Program: "actor", Reference: "localhost/kubelet-backoff/pulled:test", Files: map[string][]byte{"pulled": nil}}

// imageRegistry is a registry on loopback, for one scenario. All its images are copies of
// pulledImage.
type imageRegistry struct {
	*e2e
	host, prefix string
	mu           sync.Mutex
	pulled       map[string][]pull
	// asked has the images of which CRI-O has asked once in a pull. If they do not exist, it asks twice.
	asked map[string]bool
	// answers has the HTTP status of each image that does not answer with 404.
	answers map[string]int
}

// pull is a pull of an image, and the HTTP status with which the registry answered it.
type pull struct {
	at     time.Time
	status int
}

func (e *e2e) startRegistry(t *testing.T) *imageRegistry {
	t.Helper()
	const stored = "/v2/pulled"
	r := &imageRegistry{e2e: e, pulled: map[string][]pull{}, asked: map[string]bool{}, answers: map[string]int{}}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if after, found := strings.CutPrefix(req.URL.Path, "/v2/"+r.prefix+"/"); found {
			name, _, _ := strings.Cut(after, "/")
			// A pull begins with this request. CRI-O sends it with the method GET.
			if status := r.answer(name, strings.HasSuffix(after, "/manifests/test")); status != http.StatusOK {
				http.Error(w, "it was told to fail", status)
				return
			}
			req.URL.Path = stored + strings.TrimPrefix(after, name)
		}
		images.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.host, r.prefix = server.Listener.Addr().String(), strings.ToLower(filepath.Base(t.Name()))
	require.NoError(t, e.Push(pulledImage, r.host+"/pulled"))
	return r
}

// answer returns the status to answer with, and counts a pull.
func (r *imageRegistry) answer(name string, pulls bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.pulled[name]
	// A runtime repeats a question at once if the registry fails. The pull fails even if the
	// registry works by then.
	if last := len(all) - 1; last >= 0 && all[last].status >= http.StatusInternalServerError && time.Since(all[last].at) < 5*time.Second {
		return all[last].status
	}
	status := cmp.Or(r.answers[name], http.StatusNotFound)
	if pulls && status == http.StatusNotFound && r.crio() {
		r.asked[name] = !r.asked[name]
		pulls = r.asked[name]
	}
	if pulls {
		r.pulled[name] = append(all, pull{time.Now(), status})
	}
	return status
}

// set sets the status with which the registry answers all questions for an image.
func (r *imageRegistry) set(status int, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		r.answers[name] = status
	}
}

// container returns a container with an image of its own in the registry.
func (r *imageRegistry) container(name string, policy v1.PullPolicy, lives ...string) v1.Container {
	c := container(name, lives...)
	c.Image, c.ImagePullPolicy = r.host+"/"+r.prefix+"/"+name+":test", policy
	return c
}

// pulls returns the pulls of an image so far.
func (r *imageRegistry) pulls(name string) []pull {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulled[name])
}

// served returns the number of successful ones.
func (r *imageRegistry) served(name string) int {
	return len(slices.DeleteFunc(r.pulls(name), func(p pull) bool { return p.status != http.StatusOK }))
}

// awaitPulls waits until the node has asked for an image so often.
func (r *imageRegistry) awaitPulls(t *testing.T, name string, count int) {
	t.Helper()
	require.NoError(t, harness.Await(r.ctx, fmt.Sprintf("pull %d of %s", count, name), patience, func(context.Context) error {
		if got := len(r.pulls(name)); got < count {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	}))
}
