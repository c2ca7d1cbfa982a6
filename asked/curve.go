// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// CurvePrefix, followed by the name of a container, is the annotation with the back-off of that
// container. Its value has fields, separated by commas: initial, max and reset are durations, and
// ignore is an exit code that is no failure. Any field may be missing, and ignore may come more
// than once.
const CurvePrefix = "restart-backoff.kubelet-backoff.github.io/"

// The bounds of the fields of CurvePrefix. The maximum of the node also bounds both delays.
const (
	MinCurveInitial = time.Second
	MaxCurveMax     = 300 * time.Second
	MinCurveReset   = time.Second
	MaxCurveReset   = time.Hour
)

// maxCurve is the length of the longest value of CurvePrefix that can be valid.
const maxCurve = 256

// Curves are the back-offs that the containers of a node ask for, made by NewCurves. A nil
// *Curves ignores the annotations. Set RulesOf of the node's
// backoff.Backoff to Rules, and call Note for a pod before each decision about its containers. The
// methods are safe for concurrent use.
type Curves struct {
	node backoff.Curve

	lock  sync.Mutex
	rules map[string]*backoff.KeyRules // by key of the back-off
	pods  map[types.UID]*curved
}

// curved is what Curves knows of a pod that had an annotation.
type curved struct {
	keys sets.Set[string]
	// reported has the errors that were reported of the present annotations, by name.
	reported map[string]string
	// warnedAt is when the last one was, and notedAt when the pod was noted.
	warnedAt, notedAt time.Time
}

// counted is how long a pod counts for Count after it was noted. The kubelet syncs a pod each minute
// or two.
const counted = 10 * time.Minute

// NewCurves returns the Curves of a node with the given curve.
func NewCurves(node backoff.Curve) *Curves {
	return &Curves{node: node, rules: map[string]*backoff.KeyRules{}, pods: map[types.UID]*curved{}}
}

// Rules returns the rules of a key of the back-off, or nil if its container asks for none.
func (c *Curves) Rules(key string) *backoff.KeyRules {
	if c == nil {
		return nil
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.rules[key]
}

// Note reads the annotations of a pod. A container with an invalid value has the curve of the
// node. Note records an annotation that has no effect as an event of the pod, once, and at most
// one event in RestartAtInterval. recorder may be nil.
//
// Curves remembers a pod that had an annotation until Forget, or until another pod is noted when
// it has not been noted for an hour.
func (c *Curves) Note(recorder restart.EventRecorder, pod *v1.Pod, now time.Time) {
	if c != nil {
		for _, e := range c.note(pod, now) {
			e.record(recorder, pod)
		}
	}
}

func (c *Curves) note(pod *v1.Pod, now time.Time) (events []event) {
	c.lock.Lock()
	defer c.lock.Unlock()
	p := c.pods[pod.UID]
	if p == nil {
		if len(CurveAnnotations(pod)) == 0 {
			return nil
		}
		for uid, other := range c.pods {
			if now.Sub(other.notedAt) > remembered {
				c.forget(uid)
			}
		}
		p = &curved{reported: map[string]string{}}
		c.pods[pod.UID] = p
	}
	keys := sets.New[string]()
	for _, a := range curvesOf(pod, c.node) {
		if a.rules != nil {
			key := restart.Key(pod, a.container)
			c.rules[key] = a.rules
			keys.Insert(key)
		} else if text := a.err.Error(); p.reported[a.name] != text && now.Sub(p.warnedAt).Abs() >= RestartAtInterval {
			p.reported[a.name], p.warnedAt = text, now
			events = append(events, event{v1.EventTypeWarning, EventInvalidAnnotation, text})
		}
	}
	for name := range p.reported {
		if pod.Annotations[name] == "" {
			delete(p.reported, name)
		}
	}
	for key := range p.keys.Difference(keys) {
		delete(c.rules, key)
	}
	p.keys, p.notedAt = keys, now
	return events
}

// Forget forgets a pod that is gone.
func (c *Curves) Forget(uid types.UID) {
	if c != nil {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.forget(uid)
	}
}

func (c *Curves) forget(uid types.UID) {
	if p := c.pods[uid]; p != nil {
		for key := range p.keys {
			delete(c.rules, key)
		}
		delete(c.pods, uid)
	}
}

// Count returns the number of containers that have a back-off of their own, of pods that were
// noted in the last ten minutes.
func (c *Curves) Count(now time.Time) (n int) {
	if c == nil {
		return 0
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, p := range c.pods {
		if now.Sub(p.notedAt) < counted {
			n += len(p.keys)
		}
	}
	return n
}

// curveAnnotation is an annotation with a back-off. It has either rules or an error.
type curveAnnotation struct {
	name      string
	container *v1.Container
	rules     *backoff.KeyRules
	err       *field.Error
}

// curvesOf returns the annotations of the pod that are not empty, sorted by name.
func curvesOf(pod *v1.Pod, node backoff.Curve) (annotations []curveAnnotation) {
	for _, name := range CurveAnnotations(pod) {
		if pod.Annotations[name] == "" {
			continue
		}
		a := curveAnnotation{name: name}
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if CurvePrefix+list[i].Name == name {
					a.container = &list[i]
				}
			}
		}
		if a.rules, a.err = parseCurve(name, pod.Annotations[name], node); a.err == nil && a.container == nil {
			a.rules, a.err = nil, field.NotFound(annotationPath(name), strings.TrimPrefix(name, CurvePrefix))
		}
		annotations = append(annotations, a)
	}
	return annotations
}

// RulesOf returns the rules that a container asks for on a node with the given curve, or nil if it
// asks for none or the value is not valid.
func RulesOf(pod *v1.Pod, container string, node backoff.Curve) *backoff.KeyRules {
	for _, a := range curvesOf(pod, node) {
		if a.rules != nil && a.container.Name == container {
			return a.rules
		}
	}
	return nil
}

// CurveAnnotations returns the names of the pod's annotations with a back-off, sorted.
func CurveAnnotations(pod *v1.Pod) []string {
	return annotationsOf(pod, func(name string) bool { return strings.HasPrefix(name, CurvePrefix) })
}

// ValidateCurves returns an error for each of CurveAnnotations that has no effect: its value is
// not valid, or the pod has no container of that name.
func ValidateCurves(pod *v1.Pod) (errs field.ErrorList) {
	for _, a := range curvesOf(pod, backoff.Curve{Max: MaxCurveMax}) {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errs
}

// parseCurve returns the rules of a value, within those of a node.
func parseCurve(name, value string, node backoff.Curve) (*backoff.KeyRules, *field.Error) {
	invalid := func(format string, args ...any) (*backoff.KeyRules, *field.Error) {
		return nil, field.Invalid(annotationPath(name), shortened(value), fmt.Sprintf(format, args...))
	}
	if len(value) > maxCurve {
		return invalid("must have at most %d bytes", maxCurve)
	}
	r := &backoff.KeyRules{Initial: node.Initial, Max: node.Max, Reset: backoff.ContainerResetPeriod}
	durations := map[string]struct {
		value    *time.Duration
		min, max time.Duration
	}{
		"initial": {&r.Initial, MinCurveInitial, MaxCurveMax},
		"max":     {&r.Max, MinCurveInitial, MaxCurveMax},
		"reset":   {&r.Reset, MinCurveReset, MaxCurveReset},
	}
	seen := sets.New[string]()
	for _, part := range strings.Split(value, ",") {
		key, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		d, timed := durations[key]
		switch {
		case key == "ignore":
			code, err := strconv.ParseUint(text, 10, 8)
			if err != nil {
				return invalid("ignore: %q must be an exit code from 0 to 255", text)
			}
			if !slices.Contains(r.Ignored, int32(code)) {
				r.Ignored = append(r.Ignored, int32(code))
			}
		case !timed || seen.Has(key):
			return invalid("%q must be one of initial=1s, max=30s, reset=5m and ignore=0, and only ignore may come again", part)
		default:
			t, err := time.ParseDuration(text)
			if err != nil || t < d.min || t > d.max {
				return invalid("%s: %q must be a duration from %s to %s", key, text, d.min, d.max)
			}
			*d.value = t
		}
		seen.Insert(key)
	}
	if seen.HasAll("initial", "max") && r.Initial > r.Max {
		return invalid("initial: %s must not be more than max, %s", r.Initial, r.Max)
	}
	r.Max = min(r.Max, node.Max)
	r.Initial = min(r.Initial, r.Max)
	return r, nil
}
