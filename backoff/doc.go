// SPDX-License-Identifier: Apache-2.0

// Package backoff keeps an exponential back-off per key: the kubelet's
// CrashLoopBackOff.
//
// [Backoff] is a drop-in for k8s.io/client-go/util/flowcontrol.Backoff. It has
// the same constructors, methods and exported fields, and it gives the same
// results wherever upstream's are right. Beyond that surface there are
// [Backoff.Decide], which checks and advances under one lock, a form of every
// method that takes the time as an argument, named reset rules, persistence of
// a key, iteration and metrics.
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
//	                      first check that found the key waiting. A wait lasts
//	                      until Next, Decide or EndWait end it, whatever the
//	                      event times that are passed meanwhile.
//	event-unknown         upstream never waits after an event at or before the
//	                      Unix epoch, which is what a runtime reports when it
//	                      does not know; here such an event counts as having
//	                      happened at the check that first saw it.
//	zero-value            upstream's Next panics on a Backoff that no constructor
//	                      made; here its delays are 0.
package backoff
