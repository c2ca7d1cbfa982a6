// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// load sets the state of the agent from the status that an earlier agent left.
func (a *Agent) load() error {
	status := savedStatus{PodStatus: a.o.Earlier}
	if a.o.StatusFile != "" {
		data, err := os.ReadFile(a.o.StatusFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		status = savedStatus{}
		if err := json.Unmarshal(data, &status); err != nil {
			return fmt.Errorf("%s: %w; remove the file to discard the saved status", a.o.StatusFile, err)
		}
	}
	if status.UID != "" && status.UID != a.o.Pod.UID {
		return nil // Its start time and restarts are those of another pod with this name.
	}
	a.conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c v1.PodCondition) bool { return !isRestartCondition(c) })
	if status.StartTime != nil {
		a.startedAt = status.StartTime.Time
	}
	for _, s := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		a.before[s.ContainerID] = s
	}
	if status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed {
		a.phase, a.failedReason, a.failedMessage = status.Phase, status.Reason, status.Message
	}
	maps.Copy(a.stopped, status.Stopped)
	for i := range a.containers {
		c := &a.containers[i]
		c.unseen, c.backOff = status.Unseen[c.Name], status.BackOffs[c.Name]
	}
	a.podBackOff = status.PodBackOff
	return nil
}

// savedStatus is the content of a status file.
type savedStatus struct {
	v1.PodStatus
	// UID is that of the pod.
	UID types.UID `json:"uid,omitempty"`
	// Stopped is Agent.stopped.
	Stopped map[string]restartpod.StopTime `json:"stopped,omitempty"`
	// Unseen maps the names of containers to their starts.
	Unseen map[string]*unseen `json:"unseen,omitempty"`
	// BackOffs maps the names of containers to container.backOff.
	BackOffs   map[string]string `json:"backOffs,omitempty"`
	PodBackOff string            `json:"podBackOff,omitempty"`
}

// save writes what the next agent cannot get from the runtime: that the pod has ended, the
// conditions, the results of the probes, the instances that an agent stopped, the starts
// that State does not show yet, and the back-offs. An error does not stop the pod. Its risk is described at
// restartpod.Plan.Conditions.
func (a *Agent) save() {
	if a.o.StatusFile == "" {
		return
	}
	startTime := metav1.NewTime(a.startedAt)
	status := savedStatus{PodStatus: v1.PodStatus{Conditions: a.conditions, StartTime: &startTime}, UID: a.o.Pod.UID,
		Stopped: map[string]restartpod.StopTime{}, Unseen: map[string]*unseen{}, BackOffs: map[string]string{}, PodBackOff: a.podBackOff}
	if a.phase != v1.PodRunning {
		status.Phase, status.Reason, status.Message = a.phase, a.failedReason, a.failedMessage
	}
	for i := range a.containers {
		c := &a.containers[i]
		if c.unseen != nil {
			status.Unseen[c.Name] = c.unseen
		}
		if c.backOff != "" {
			status.BackOffs[c.Name] = c.backOff
		}
		if c.instance == nil {
			continue
		}
		started := c.probe.hasStarted()
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, ContainerID: c.instance.ID, Started: &started, Ready: started && c.probe.ready,
		})
		if when, ok := a.stopped[c.instance.ID]; ok {
			status.Stopped[c.instance.ID] = when
		}
	}
	data, err := json.Marshal(status)
	if err == nil && string(data) != a.saved {
		if err = replaceFile(a.o.StatusFile, data); err == nil {
			a.saved = string(data)
		}
	}
	if err != nil {
		a.fail("FailedSync", "cannot save the pod's status: ", err)
	}
}

// replaceFile replaces a file atomically.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
