// SPDX-License-Identifier: Apache-2.0

// Package backoff keeps an exponential back-off per key: the kubelet's
// CrashLoopBackOff.
//
// [Backoff] is a drop-in for k8s.io/client-go/util/flowcontrol.Backoff. It has
// the same constructors, methods and exported fields, and it gives the same
// results wherever upstream's are right. Beyond that surface there are
// [Backoff.Decide], which checks and advances under one lock, a form of every
// method that takes the time as an argument, named reset rules, persistence of
// a key, iteration and metrics. In every method that takes both, the time of the
// event comes before the present.
//
// # Starts
//
// A Decision that allows a start is a grant: one event is answered with one start,
// however often and by how many it is asked for. Whoever is granted a start and
// does not make it gives it back with [Backoff.GiveBack]; if it is made and fails,
// [Backoff.Fail] counts that as an exit. [Backoff.Start] is for starts that follow
// no exit.
//
// # The curve
//
// The n-th restart since the last reset waits, counted from the exit before it:
//
//	initial 10s, max 300s:               0, 10s, 20s, 40s, 80s, 160s, 300s, 300s …
//	the same with DelayFirstRestart:   10s, 20s, 40s, 80s, 160s, 300s, 300s …
//	initial 4s, max 4s:                  0, 4s, 4s …
//	initial 1s, max 60s:                 0, 1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s …
//
// Only [NewBackOffWithJitter] adds jitter to these. The kubelet has none, as
// docs/results/herd.md explains.
//
// # Differences from client-go
//
// Each row is a defect of upstream's at v0.37. A test of the row's name fails
// on upstream's type and passes on this one; a differential test and a fuzz
// target find no other differences in random sequences of operations on a clock
// that goes forwards, without jitter.
//
//	initial-above-max     upstream starts at initial although max is lower, so
//	                      the delay shrinks; here initial is clamped to max.
//	jitter-above-max      upstream's first jitter may exceed max; here no delay
//	                      that is returned is longer than max.
//	jitter-compounds      upstream stores the jittered delay and doubles it;
//	                      here jitter is added to what is returned, the same
//	                      for all checks of one wait.
//	delay-overflows       upstream's doubling overflows when the doubled delay
//	                      passes 292 years; here it saturates at max.
//	reset-overflows       upstream's default rule overflows for a max above
//	                      146 years and then always resets; here it saturates.
//	negative-delay        upstream keeps a negative initial or max; here it
//	                      counts as 0, which never waits.
//	gc-cuts-wait          upstream's GC removes a key while it waits, so it is
//	                      released early and starts over; here the age of one
//	                      that was found waiting counts from the end of its wait.
//	clock-steps-back      upstream waits until the wall clock has caught up;
//	                      here a wait ends at the latest one delay after the
//	                      first check that found the key waiting after this
//	                      event. With monotonic readings it ends when it would
//	                      have without the step, in whichever direction.
//	event-unknown         upstream never waits after an event at or before the
//	                      Unix epoch, which is what a runtime reports when it
//	                      does not know; here such an event counts as having
//	                      happened at the check that first saw it.
//	event-in-future       upstream takes the time until an event in the future for
//	                      the length of a run, and starts over; here it counts
//	                      as happening at the check that first saw it.
//	event-answered        upstream allows a start after an event before the last
//	                      advance each time it is asked; here Decide answers it
//	                      once, and it counts from that answer. IsInBackOffSince,
//	                      which cannot know whether a start follows, does as
//	                      upstream.
//	zero-value            upstream's Next panics on a Backoff that no constructor
//	                      made; here its delays are 0.
//
// # Memory and locks
//
// The keys are in a map. GC looks at 256 of them at a time under the lock, and
// puts what is left into a new map if that is at most 4096 keys, as a map does not
// shrink by itself: above that, the memory of removed keys is used for new ones
// only. An insertion that makes a large map grow takes as long as in any map, some
// 15 ms at a million keys.
//
// A decision that allows a start takes 0.70 to 0.77 times as long as client-go's
// two calls at 110 keys, where 0.75 was the goal, 0.9 times at a million, and 1.3
// times or more at 100,000, where the processor's caches count: an entry has to
// hold more than client-go's. `make bench` measures it.
package backoff
