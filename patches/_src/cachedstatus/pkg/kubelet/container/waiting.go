/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package container

import (
	"errors"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// waitingError marks the error of a sync that changed nothing.
type waitingError struct{ error }

func (e waitingError) Unwrap() error { return e.error }

// Waiting marks err as the error of a pod's sync that changed nothing. Such a sync
// started, killed and configured nothing because everything left to do waits for a
// back-off. The state of the pod's newest instances from before the sync is then
// still valid.
func Waiting(err error) error {
	if err == nil {
		return nil
	}
	return waitingError{err}
}

// Changed removes the mark of Waiting from err. It is for a sync that changed
// something before the action that returned err.
func Changed(err error) error {
	for {
		w, marked := err.(waitingError)
		if !marked {
			return err
		}
		err = w.error
	}
}

// IsWaiting reports whether err was marked by Waiting. It is false for an error that
// joins a marked error with others: the sync may have changed something before those.
func IsWaiting(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, marked := err.(waitingError); marked {
			return true
		}
	}
	return false
}

// ChangedNothing reports whether one action of a pod's sync, which returned err,
// left the pod unchanged. This is the case if a back-off prevented a start, or if
// the action only created the sandbox configuration. A start that failed changed
// something, although its error is a BackoffError too.
func ChangedNothing(action string, err error) bool {
	if err == nil {
		return action == "ConfigPodSandbox"
	}
	return restart.OnlyBackOff(err) && errors.Is(err, ErrCrashLoopBackOff)
}

// markWaiting returns err, the error of the sync. If the sync changed nothing, the
// error is marked as such.
func (p *PodSyncResult) markWaiting(err error) error {
	if p.SyncError != nil || !utilfeature.DefaultFeatureGate.Enabled(features.KubeletCachedStatusInBackOff) {
		return err
	}
	for _, r := range p.SyncResults {
		if !ChangedNothing(string(r.Action), r.Error) {
			return err
		}
	}
	return Waiting(err)
}
