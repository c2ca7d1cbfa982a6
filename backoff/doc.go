// SPDX-License-Identifier: Apache-2.0

// Package backoff keeps an exponential back-off per key. It implements the
// kubelet's CrashLoopBackOff.
//
// [Backoff] is a drop-in for k8s.io/client-go/util/flowcontrol.Backoff. It has
// the same constructors, methods and exported fields, and the same results
// wherever upstream's are right. It adds:
//
//   - [Backoff.Decide], which checks and advances a key under one lock,
//   - a form of every method that takes the current time as an argument,
//   - named reset rules ([FlatReset], [ProportionalReset]),
//   - persistence of a key ([Backoff.Snapshot], [Backoff.Restore]), iteration
//     ([Backoff.All]) and metrics ([Backoff.SetMetrics]).
//
// A method that takes both times takes the time of the event first.
//
// # Usage
//
// A key stands for one container. The first start of a container needs no
// decision. Before each restart, call Decide with the time of the exit:
//
//	b := backoff.NewBackOff(10*time.Second, 300*time.Second)
//	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
//
//	d := b.Decide(key, exitedAt)
//	if !d.Allowed {
//		return d.RetryAt // call Decide again then, with the same exitedAt
//	}
//	if err := startContainer(); err != nil {
//		b.Fail(key)
//	}
//
// # Starts
//
// A Decision that allows a start is a grant. One event permits one start, no
// matter how many callers ask about the event. A caller that does not make its
// start gives it back with [Backoff.GiveBack]. If the start fails,
// [Backoff.Fail] counts the failure as an exit. [Backoff.Start] is for starts
// that follow no exit.
//
// # The curve
//
// The delay of the n-th restart since the last reset counts from the exit
// before it:
//
//	initial 10s, max 300s:               0, 10s, 20s, 40s, 80s, 160s, 300s, 300s …
//	the same with DelayFirstRestart:   10s, 20s, 40s, 80s, 160s, 300s, 300s …
//	initial 4s, max 4s:                  0, 4s, 4s …
//	initial 1s, max 60s:                 0, 1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s …
//
// Only [NewBackOffWithJitter] adds jitter to these. The kubelet uses none; see
// docs/results/herd.md for the reason.
//
// # Differences from client-go
//
// Each row is a defect of client-go v0.37. A test of the same name fails on
// upstream's type and passes on this one. A differential test and a fuzz target
// find no other differences. They run random sequences of operations without
// jitter, on a clock that does not step back.
//
//	initial-above-max     upstream starts at initial even if max is lower, so
//	                      the delay shrinks; here initial is clamped to max.
//	jitter-above-max      upstream's first jitter may exceed max; here no
//	                      returned delay exceeds max.
//	jitter-compounds      upstream stores the jittered delay and doubles it;
//	                      here jitter is only added to the returned delay, and
//	                      is the same for all checks of one wait.
//	delay-overflows       upstream's doubling overflows when the doubled delay
//	                      exceeds 292 years; here it saturates at max.
//	reset-overflows       upstream's default rule overflows for a max above
//	                      146 years and then always resets; here it saturates.
//	negative-delay        upstream keeps a negative initial or max; here it
//	                      counts as 0, which never waits.
//	gc-cuts-wait          upstream's GC removes a waiting key, so the key is
//	                      released early and starts over; here the age of a
//	                      waiting key counts from the end of its wait.
//	clock-steps-back      upstream waits until the wall clock has caught up;
//	                      here a wait ends at the latest one delay after the
//	                      first check that found the key waiting after this
//	                      event. With monotonic readings a step of the clock in
//	                      either direction does not move the end of a wait.
//	event-unknown         upstream never waits after an event at or before the
//	                      Unix epoch, the time that a runtime reports if it does
//	                      not know the time; here such an event counts as
//	                      happening at the check that first saw it.
//	event-in-future       upstream takes the time until an event in the future
//	                      for the length of a run, and resets the key; here the
//	                      event counts as happening at the check that first saw
//	                      it.
//	event-answered        upstream allows a start after an event before the last
//	                      advance each time it is asked; here Decide allows it
//	                      once, and later questions about the event count from
//	                      that start. IsInBackOffSince cannot know whether a
//	                      start follows, and does the same as upstream.
//	zero-value            upstream's Next panics on a Backoff that no constructor
//	                      made; here its delays are 0.
//
// # Memory and locks
//
// The keys are in a map. GC checks 256 keys at a time under the lock. A map does
// not shrink by itself, so GC moves the remaining keys to a new map if there are
// at most 4096. Otherwise the memory of removed keys is only used for new keys.
// An insertion that makes a large map grow takes as long as in any map: about
// 15 ms at a million keys.
//
// A decision that allows a start takes 0.70 to 0.77 times as long as client-go's
// two calls at 110 keys; the goal was 0.75. It takes 0.9 times as long at a
// million keys. At 100,000 keys it takes 1.3 times as long or longer because an
// entry is larger than client-go's and the processor's caches matter. `make
// bench` measures this.
package backoff
