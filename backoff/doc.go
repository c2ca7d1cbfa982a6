// SPDX-License-Identifier: Apache-2.0

// Package backoff keeps an exponential back-off per key. It implements the
// kubelet's CrashLoopBackOff.
//
// [Backoff] is a drop-in for k8s.io/client-go/util/flowcontrol.Backoff. It has the same
// constructors, methods and exported fields, and the same results wherever upstream's are right.
// These methods read the clock. The methods that client-go does not have take the time as their
// last argument.
//
// # Usage
//
// A key stands for one container. Before each restart, call Decide with the time of
// the exit. The first start of a container needs no decision.
//
//	b := backoff.NewBackOff(10*time.Second, 300*time.Second)
//	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
//
//	d := b.Decide(key, exitedAt, time.Now())
//	if !d.Allowed {
//		return d.RetryAt // call Decide again then, with the same exitedAt
//	}
//	if err := startContainer(); err != nil {
//		b.Fail(key, time.Now())
//	}
//
// # Starts
//
// A Decision that allows a start is a grant. One event permits one start, no
// matter how many callers ask about the event. A key is in one of these states:
//
//	running     the last start took effect ([Backoff.Started])
//	granted     the last start was allowed, and may not have been made yet
//	waiting     the run has ended, and the next start waits (Decide, [Backoff.Exited])
//	failed      the last start failed, which counts as an exit ([Backoff.Fail])
//	given back  the last start was not made, and is allowed again ([Backoff.GiveBack])
//
// Only a granted start can be given back. [Backoff.DecideStart] is for starts that follow no
// exit, and [Backoff.Force] for restarts that do not wait.
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
// [NewBackOffWithJitter] adds jitter. The kubelet uses none (docs/results/herd.md).
//
// A key may have a curve of its own, and exit codes that are no failure: see [KeyRules] and
// [Backoff.DecideExit].
//
// # Differences from client-go
//
// Each row is a defect of client-go v0.37. A test of the same name fails on upstream's type
// and passes on this one. A differential test and a fuzz target find no other differences. They
// run random sequences of operations without jitter, on a clock that does not step back.
//
//	initial-above-max  upstream starts at initial even if max is lower, so the delay shrinks;
//	                   here initial is clamped to max.
//	jitter-above-max   upstream's first jitter may exceed max; here no returned delay does.
//	jitter-compounds   upstream stores the jittered delay and doubles it; here jitter is only
//	                   added to the returned delay, and is the same for all checks of a wait.
//	delay-overflows    upstream's doubling overflows above 292 years; here it saturates at max.
//	reset-overflows    upstream's default rule overflows for a max above 146 years and then
//	                   always resets; here it saturates.
//	negative-delay     upstream keeps a negative initial or max; here it counts as 0, which
//	                   never waits. With 0, upstream waits until the time of the last advance.
//	gc-cuts-wait       upstream's GC removes a waiting key, so the key is released early and
//	                   starts over; here the reset rule must hold one delay before now.
//	clock-steps-back   upstream waits until the wall clock has caught up; here a wait ends at
//	                   the latest one delay after the first Decide that saw the event, or,
//	                   if times have no monotonic readings, after the last step back. With
//	                   monotonic readings a step in either direction does not move the end.
//	event-unknown      upstream never waits after an event at or before the Unix epoch, which a
//	                   runtime reports for an unknown time; here the event counts as happening
//	                   at the first Decide that saw it. For IsInBackOffSince and Next it counts
//	                   as happening at the last advance.
//	event-in-future    upstream takes the time until a future event for the length of a run,
//	                   and resets the key; here the event counts as happening now.
//	event-answered     upstream allows a start after an event before the last advance each time
//	                   it is asked; here Decide allows it once, and later questions count from
//	                   that start. IsInBackOffSince starts nothing, and does as upstream.
//	lock-exported      upstream embeds its lock, so a caller can hold it; here it is private.
//	zero-value         upstream's Next panics on a Backoff that no constructor made; here its
//	                   delays are 0.
//
// GC checks 256 keys at a time under the lock. A map does not shrink by itself, so GC moves the
// remaining keys to a new map if there are at most 4096.
package backoff
