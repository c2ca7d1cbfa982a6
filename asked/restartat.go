// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

const (
	// RestartAtAnnotation is the annotation with the time at which the waits of a pod
	// end.
	RestartAtAnnotation = "kubelet-backoff.github.io/restart-at"
	// RestartAtPrefix, followed by the name of a container, is the annotation with the
	// time at which the wait of that container ends.
	RestartAtPrefix = "restart-at.kubelet-backoff.github.io/"
)

// RestartAtInterval is the least time between the time of an annotation that ends a wait and
// the newest one that has ended a wait of the pod. So a pod that asks all the time gets one restart more in ten seconds, the kubelet's
// default initial delay, whatever its curve is: see Restarts.
const RestartAtInterval = 10 * time.Second

// The reasons of the events that EndWait records.
const (
	EventBackOffEnded      = "BackOffEnded"
	EventRestartRefused    = "RestartRefused"
	EventInvalidAnnotation = "InvalidAnnotation"
)

// Outcome is how EndWait has answered an annotation. It is made to be the value of a
// metric's label.
type Outcome string

const (
	// Honored means that the wait has ended.
	Honored Outcome = "honored"
	// Refused means that the time is less than RestartAtInterval from another one of the
	// pod that ended a wait.
	Refused Outcome = "refused"
	// Invalid means that the value is not a time.
	Invalid Outcome = "invalid"
)

// Restarts ends waits at the times that the pods of a node ask for. A nil *Restarts
// ignores the annotations. The methods are safe for concurrent use.
//
// A time ends a wait that began before it. So it counts once for each container, also
// after a restart of the agent: the next exit comes after it. After such a restart, it
// counts again only if no start has succeeded since, and RestartAtInterval counts from the
// next time.
//
// The curve starts over, unless an annotation of the pod has done that in the last
// backoff.ContainerResetPeriod. Otherwise a pod could stay at the beginning of its curve,
// which may have several delays of less than RestartAtInterval.
type Restarts struct {
	lock sync.Mutex
	pods map[types.UID]*requests
}

// requests is what Restarts knows of a pod.
type requests struct {
	// answered has the last time that was honored or refused, by container; "" is the
	// pod. An earlier one does not count.
	answered map[string]time.Time
	// last is the last time that was honored for any of them. startsOver is true if that
	// starts curves over, and resetAt is when the last one began to do so.
	last, resetAt time.Time
	startsOver    bool
	// reported has the invalid values that were reported, as errors, by annotation.
	reported map[string]string
	// warnedAt is when a warning was last recorded, and usedAt when a field last changed.
	warnedAt, usedAt time.Time
}

// remembered is how long Restarts remembers a pod after its last request. It is longer than
// everything that counts.
const remembered = time.Hour

// EndWait ends a wait if the pod asks for that. It returns until when the wait lasts: until
// now if it has just been ended, until a time to come if an annotation names one before
// retryAt, or else until retryAt. The Outcome is empty if no annotation was answered.
//
// Call it when restart.DoBackOff has made the container wait until retryAt. key is the key
// of the wait in backOff. If container is empty, the wait is that of a restart of the pod
// (StartAt of restartpod.Plan). If the wait has been ended, DoBackOff, or the machine's
// Step, allows the start the next time. A wait that counts from the last start goes on: the
// exit was not later than that, or the statuses are older, and the container may run.
//
// EndWait records each outcome as an event of the pod, warnings at most once in
// RestartAtInterval. recorder may be nil.
func (r *Restarts) EndWait(recorder restart.EventRecorder, pod *v1.Pod, container string, backOff *backoff.Backoff, key string, retryAt, now time.Time) (time.Time, Outcome) {
	if r == nil || pod.Annotations[RestartAtAnnotation] == "" && pod.Annotations[RestartAtPrefix+container] == "" {
		return retryAt, ""
	}
	state, _ := backOff.Snapshot(key, now)
	since := state.WaitingSince
	if state.Due {
		since = state.LastUpdate // It waits after a start that failed.
	}
	if since.IsZero() {
		return retryAt, ""
	}
	until, outcome, e := r.endWait(pod, container, since, backOff, key, retryAt, now)
	e.record(recorder, pod)
	return until, outcome
}

type event struct{ eventType, reason, message string }

// record records the event for the pod, if there is an event and a recorder.
func (e event) record(recorder restart.EventRecorder, pod *v1.Pod) {
	if e != (event{}) && recorder != nil {
		// The recorder of the kubelet's runtime manager records only for references.
		ref := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
		recorder.Eventf(ref, e.eventType, e.reason, "%s", e.message)
	}
}

// endWait is EndWait for a wait that began at since. It returns the event to record.
func (r *Restarts) endWait(pod *v1.Pod, container string, since time.Time, backOff *backoff.Backoff, key string, retryAt, now time.Time) (time.Time, Outcome, event) {
	r.lock.Lock()
	defer r.lock.Unlock()
	p := r.pods[pod.UID]
	if p == nil {
		p = &requests{answered: map[string]time.Time{}, reported: map[string]string{}}
	}
	annotation, at, invalid := "", time.Time{}, [2]string{}
	for _, name := range []string{RestartAtAnnotation, RestartAtPrefix + container} {
		value := pod.Annotations[name]
		if value == "" {
			continue
		}
		t, err := parseRestartAt(name, value)
		switch {
		case err != nil && p.reported[name] != err.Error():
			invalid = [2]string{name, err.Error()}
		case err != nil || !t.After(since) || !p.mayAnswer(t, container, now):
		case annotation == "", at.After(now) && t.Before(at), at.Before(t) && !t.After(now):
			annotation, at = name, t
		}
	}
	quiet := now.Sub(p.warnedAt) < RestartAtInterval && !now.Before(p.warnedAt)
	warning := func(reason, message string) event {
		if quiet {
			return event{}
		}
		p.warnedAt = now
		return event{v1.EventTypeWarning, reason, message}
	}
	distance := at.Sub(p.last).Abs()
	switch {
	case annotation == "" && (invalid[0] == "" || quiet):
		return retryAt, "", event{}
	case annotation == "":
		r.keep(pod.UID, p, now)
		p.reported[invalid[0]] = invalid[1]
		return retryAt, Invalid, warning(EventInvalidAnnotation, invalid[1])
	case at.After(now):
		if at.Before(retryAt) {
			retryAt = at
		}
		return retryAt, "", event{}
	case 0 < distance && distance < RestartAtInterval:
		r.keep(pod.UID, p, now)
		p.answered[container] = at
		return retryAt, Refused, warning(EventRestartRefused, fmt.Sprintf("Annotation %s: %s: refused, because it is %s from another time that ended a wait of the pod, and not %s: set a later time",
			annotation, pod.Annotations[annotation], distance, RestartAtInterval))
	}
	r.keep(pod.UID, p, now)
	p.answered[container] = at
	if distance > 0 {
		if at.After(p.last) {
			p.last = at
		}
		p.startsOver = now.Sub(p.resetAt) >= backoff.ContainerResetPeriod || now.Before(p.resetAt)
		if p.startsOver {
			p.resetAt = now
		}
	}
	if p.startsOver {
		backOff.Reset(key)
	}
	// A start that was allowed and given back is allowed again, as the same attempt.
	backOff.Force(key, now)
	backOff.GiveBack(key, now)
	what := "Back-off of container " + container
	if container == "" {
		what = "Back-off of the pod's restart"
	}
	return now, Honored, event{v1.EventTypeNormal, EventBackOffEnded, fmt.Sprintf("%s ends %s early: annotation %s is %s",
		what, max(retryAt.Sub(now), 0).Round(time.Millisecond), annotation, pod.Annotations[annotation])}
}

// mayAnswer reports whether a time after the beginning of the container's wait is still to
// be answered. If the last one is in the future, the clock has stepped back.
func (p *requests) mayAnswer(t time.Time, container string, now time.Time) bool {
	last := p.answered[container]
	return t.After(last) || last.After(now) && !t.Equal(last)
}

// keep stores what is known of a pod, and forgets pods that have not asked for anything
// for long.
func (r *Restarts) keep(uid types.UID, p *requests, now time.Time) {
	p.usedAt = now
	if r.pods[uid] == nil {
		maps.DeleteFunc(r.pods, func(_ types.UID, other *requests) bool { return now.Sub(other.usedAt) > remembered })
	}
	if r.pods == nil {
		r.pods = map[types.UID]*requests{}
	}
	r.pods[uid] = p
}

// RestartAtAnnotations returns the names of the pod's annotations that ask for the end of a
// wait, sorted.
func RestartAtAnnotations(pod *v1.Pod) []string {
	return annotationsOf(pod, func(name string) bool { return name == RestartAtAnnotation || strings.HasPrefix(name, RestartAtPrefix) })
}

// annotationsOf returns the names of the pod's annotations that match, sorted.
func annotationsOf(pod *v1.Pod, match func(name string) bool) (names []string) {
	for name := range pod.Annotations {
		if match(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ValidateRestartAt returns an error for each of RestartAtAnnotations that has no effect: its
// value is not a time, or the pod has no container of that name.
func ValidateRestartAt(pod *v1.Pod) field.ErrorList {
	var errs field.ErrorList
	for _, name := range RestartAtAnnotations(pod) {
		if _, err := parseRestartAt(name, pod.Annotations[name]); err != nil {
			errs = append(errs, err)
		}
		has := func(list []v1.Container) bool {
			return slices.ContainsFunc(list, func(c v1.Container) bool { return RestartAtPrefix+c.Name == name })
		}
		if container, own := strings.CutPrefix(name, RestartAtPrefix); own && !has(pod.Spec.Containers) && !has(pod.Spec.InitContainers) {
			errs = append(errs, field.NotFound(annotationPath(name), container))
		}
	}
	return errs
}

func annotationPath(name string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(name)
}

// maxValue is the length of the longest value that can be valid.
const maxValue = 64

// shortened returns an invalid value for an error.
func shortened(value string) string {
	if len(value) > maxValue {
		value = strings.ToValidUTF8(value[:maxValue], "") + "..."
	}
	return value
}

func parseRestartAt(name, value string) (time.Time, *field.Error) {
	if len(value) <= maxValue {
		if t, err := time.Parse(time.RFC3339, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, field.Invalid(annotationPath(name), shortened(value), "must be a time as in RFC 3339, such as 2026-11-26T12:00:00Z")
}
