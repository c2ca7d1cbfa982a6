// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

const (
	// trigger is the container that restarts its pod by an exit with triggerExit. In
	// scenarios in which it exits once, it first waits for triggerFile.
	trigger     = "main"
	triggerExit = 42
	triggerFile = "go"

	journalsDir = "journals"
)

// forStock returns the scenario for a kubelet without our additions. A kubelet before
// v1.32 also lacks the gate KubeletCrashLoopBackOffMax.
func (s Scenario) forStock(hasMaximum bool) Scenario {
	if !hasMaximum && s.Maximum > 0 {
		// On the default curve the first whole wait in the window is the one of 20 s, for
		// which a stock kubelet takes 30.
		s.Maximum, s.Window = 0, max(s.Window, 75*time.Second)
	}
	if s.Action == harness.ActionRestartPod {
		s.Action = corev1.ContainerRestartRuleActionRestartAllContainers
	}
	return s
}

// restartsWithin returns how many restarts of a pod that triggers whenever it runs
// fit into the scenario's window with the delays of the curve.
func (s Scenario) restartsWithin() (n int) {
	for at := time.Duration(0); at < s.Window; n++ {
		at += s.Delay(n + 1)
	}
	return n
}

// withRestartRules gives pods the containers of a scenario that restarts whole
// pods, and each pod a folder below dir for its journal. A pod that is triggered
// once has a container of every kind, and all exit at once on SIGTERM. Such pods are
// typical of in-place restarts, and their restart has the most steps: the kubelet
// must notice the trigger, the end of the init container and the start of the
// sidecar, one after another.
func withRestartRules(pods []*corev1.Pod, s Scenario, dir string) {
	create := corev1.HostPathDirectoryOrCreate
	mounts := []corev1.VolumeMount{{Name: "pod", MountPath: "/pod"}}
	if s.CSI {
		mounts = append(mounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
	container := func(name string, lives ...string) corev1.Container { return actor(name, mounts, lives...) }
	exit := fmt.Sprintf("exit=%d", triggerExit)
	main := container(trigger, exit)
	if s.Window == 0 {
		main.Args = []string{"wait=" + triggerFile + " " + exit, ""}
	}
	never, always := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways
	sidecar := container("sidecar", "")
	sidecar.RestartPolicy = &always
	main.RestartPolicy = &never
	main.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: s.Action,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{triggerExit},
		},
	}}
	for _, pod := range pods {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Volumes = []corev1.Volume{{
			Name: "pod",
			VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(dir, pod.Name), Type: &create},
			},
		}}
		if s.CSI {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
				Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: harness.CSIName}},
			})
		}
		pod.Spec.Containers = []corev1.Container{main}
		if s.Window == 0 {
			pod.Spec.InitContainers = []corev1.Container{container("init", "exit=0"), sidecar}
			pod.Spec.Containers = append(pod.Spec.Containers, container("other", ""))
		}
	}
}

// observeRestarts triggers a restart of each pod, one after another, and waits for
// its end. In a scenario with a window, it waits for the window from the first start on.
func (m *measurement) observeRestarts(api *harness.APIServer, run *Run) error {
	s, pods := m.scenario, m.pods()
	for _, pod := range pods {
		if err := m.awaitStarts(pod, 1); err != nil {
			return err
		}
	}
	if s.Window > 0 {
		m.say("%v from now on", s.Window)
		select {
		case <-time.After(s.Window):
		case <-m.Context().Done():
			return context.Cause(m.Context())
		}
	} else {
		m.say("all containers run; restarting pod by pod")
		for i, pod := range pods {
			// A kubelet looks for exited containers once per second, so a restart always
			// ends at a similar point of that second. The next trigger must come at a
			// different point each time.
			select {
			case <-time.After(time.Second + time.Second*time.Duration(i)/time.Duration(len(pods))):
			case <-m.Context().Done():
				return context.Cause(m.Context())
			}
			if err := os.WriteFile(m.Path(journalsDir, pod.Name, triggerFile), nil, 0o644); err != nil {
				return err
			}
			if err := m.awaitStarts(pod, 2); err != nil {
				return err
			}
		}
	}
	run.Journals = map[string][]harness.JournalEvent{}
	for _, pod := range pods {
		var err error
		if run.Journals[pod.Name], err = m.journal(pod); err != nil {
			return err
		}
	}
	if api == nil {
		return nil
	}
	m.say("replacing pod by pod")
	for i := range pods {
		took, err := m.replacePod(api, i)
		if err != nil {
			return err
		}
		run.Replaced = append(run.Replaced, took)
	}
	return nil
}

// replacePod deletes a pod and creates another one, as controllers do that do not restart
// pods in place. It returns the time until every container of the new pod has started. A
// controller takes longer: it must first see that the pod has failed.
func (m *measurement) replacePod(api *harness.APIServer, i int) (float64, error) {
	pod := m.pods()[i]
	old := pod.Name
	pod.Name = "new-" + old
	// The folder of a journal has the name of its pod.
	withRestartRules([]*corev1.Pod{pod}, m.scenario, m.Path(journalsDir))
	began := time.Now()
	if err := api.Request(m.Context(), http.MethodDelete, podsPath+"/"+old, nil, nil); err != nil {
		return 0, err
	}
	if err := api.Create(m.Context(), podsPath, pod); err != nil {
		return 0, err
	}
	if err := m.awaitStarts(pod, 1); err != nil {
		return 0, err
	}
	journal, err := m.journal(pod)
	if err != nil {
		return 0, err
	}
	last := 0.0
	for _, at := range starts(journal) {
		last = max(last, at[0])
	}
	return last - float64(began.UnixMicro())/1e6, nil
}

// awaitStarts waits until every container of the pod has started the given number of
// times.
func (m *measurement) awaitStarts(pod *corev1.Pod, times int) error {
	what := fmt.Sprintf("start %d of every container of pod %s", times, pod.Name)
	return harness.Await(m.Context(), what, 2*time.Minute, func(context.Context) error {
		journal, err := m.journal(pod)
		if err != nil {
			return err
		}
		all := starts(journal)
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if got := len(all[c.Name]); got < times {
				return fmt.Errorf("container %s has started %d times", c.Name, got)
			}
		}
		return nil
	})
}

func (m *measurement) journal(pod *corev1.Pod) ([]harness.JournalEvent, error) {
	data, err := os.ReadFile(m.Path(journalsDir, pod.Name, "journal"))
	if err != nil {
		return nil, err
	}
	journal, err := harness.ParseJournal(data)
	if err != nil {
		return nil, fmt.Errorf("journal of pod %s: %w", pod.Name, err)
	}
	return journal, nil
}

// starts returns the start times of each container.
func starts(journal []harness.JournalEvent) map[string][]float64 {
	all := map[string][]float64{}
	for _, e := range journal {
		if e.Event == "start" {
			all[e.Container] = append(all[e.Container], e.At)
		}
	}
	return all
}

// podRestart is one restart of a pod: from the exit of the trigger until the
// last of its containers has started again.
type podRestart struct{ from, to float64 }

// podRestarts returns the complete restarts in a journal.
func podRestarts(journal []harness.JournalEvent) (restarts []podRestart, err error) {
	all := starts(journal)
	for _, e := range journal {
		if e.Container != trigger || e.Event != fmt.Sprintf("exit:%d", triggerExit) {
			continue
		}
		r := podRestart{e.At, e.At}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			again := all[name]
			if again = again[min(len(again), len(restarts)+1):]; len(again) == 0 {
				return restarts, nil
			}
			if again[0] < r.from {
				return nil, fmt.Errorf("container %s started again at %.3f, before the trigger exited at %.3f", name, again[0], r.from)
			}
			r.to = max(r.to, again[0])
		}
		restarts = append(restarts, r)
	}
	return restarts, nil
}

// durations returns the durations of restarts.
func durations(restarts []podRestart) (took []float64) {
	for _, r := range restarts {
		took = append(took, r.to-r.from)
	}
	return took
}

// measureRestarts returns the figures of runs that restarted whole pods.
func measureRestarts(runs []Run, s Scenario) (f Figures, err error) {
	var took, alone, aloneStarts, replaced []float64
	for _, run := range runs {
		replaced = append(replaced, run.Replaced...)
		if run.Alone != nil {
			restarts, err := podRestarts(run.Alone.Journal)
			if err != nil {
				return Figures{}, fmt.Errorf("pod without a kubelet: %w", err)
			}
			alone = append(alone, durations(restarts)...)
			aloneStarts = append(aloneStarts, run.Alone.Starts...)
		}
		for pod, journal := range run.Journals {
			restarts, err := podRestarts(journal)
			if err != nil {
				return Figures{}, fmt.Errorf("pod %s: %w", pod, err)
			}
			for _, r := range restarts {
				if s.Window == 0 || r.to < journal[0].At+s.Window.Seconds() {
					took = append(took, r.to-r.from)
				}
			}
		}
	}
	if len(took) == 0 {
		return Figures{}, errors.New("no pod was restarted")
	}
	return Figures{
		Rounds: len(runs), Restarts: len(took), PodRestart: figures.Summarize(took),
		Alone: figures.Summarize(alone), AloneStarts: figures.Summarize(aloneStarts), Replaced: figures.Summarize(replaced),
	}, nil
}

// compareRestarts applies the criteria for restarts of whole pods. Several rounds of a
// scenario with a window add up.
func compareRestarts(s Scenario, reference string, theirs, ours Figures, criterion criterionFunc) {
	if s.Window > 0 {
		want := s.restartsWithin() * max(1, ours.Rounds)
		criterion("as many restarts as the delays leave room for", "",
			float64(theirs.Restarts), float64(ours.Restarts), float64(want), ours.Restarts == want)
		return
	}
	if reference == baseLabel {
		limit := latenessRatio*theirs.PodRestart.Median + latenessMargin
		criterion("median from trigger to all running not above base's", "s",
			theirs.PodRestart.Median, ours.PodRestart.Median, limit, ours.PodRestart.Median <= limit)
		return
	}
	limit := s.RestartRatio * theirs.PodRestart.Median
	criterion(fmt.Sprintf("median from trigger to all running at most %g of stock's", s.RestartRatio), "s",
		theirs.PodRestart.Median, ours.PodRestart.Median, limit, ours.PodRestart.Median <= limit)
	limit = s.WorstRatio * theirs.PodRestart.Worst
	criterion(fmt.Sprintf("worst from trigger to all running at most %g of stock's", s.WorstRatio), "s",
		theirs.PodRestart.Worst, ours.PodRestart.Worst, limit, ours.PodRestart.Worst <= limit)
}

// restartRows returns the rows to print for restarts of whole pods. In a scenario with
// a window the durations include waits, so only the number is printed.
func restartRows(s Scenario) []row {
	all := []row{{"restarts of the pod", "%.0f", func(f Figures) float64 { return float64(f.Restarts) }}}
	if s.Window > 0 {
		return all
	}
	all = append(all,
		row{"trigger to all running, least", "%.3f s", func(f Figures) float64 { return f.PodRestart.Least }},
		row{"trigger to all running, median", "%.3f s", func(f Figures) float64 { return f.PodRestart.Median }},
		row{"trigger to all running, mean", "%.3f s", func(f Figures) float64 { return f.PodRestart.Mean }},
		row{"trigger to all running, worst", "%.3f s", func(f Figures) float64 { return f.PodRestart.Worst }},
		row{"the same without a kubelet, median", "%.3f s", func(f Figures) float64 { return f.Alone.Median }},
		row{"  of that four starts", "%.3f s", func(f Figures) float64 { return f.AloneStarts.Median }},
	)
	if s.API {
		all = append(all, row{"a new pod instead, median", "%.3f s", func(f Figures) float64 { return f.Replaced.Median }})
	}
	return all
}

// restartString describes a scenario that restarts whole pods.
func (s Scenario) restartString(where string) string {
	action := string(s.Action)
	if stock := s.forStock(true).Action; stock != s.Action {
		action += fmt.Sprintf(" (stock: %s)", stock)
	}
	if s.Window > 0 {
		return fmt.Sprintf("%s, %s, 1 pod, always triggered, first %v", where, action, s.Window)
	}
	return fmt.Sprintf("%s, %s, %d pods, each triggered once", where, action, s.Pods)
}

// summary returns a line about a run, to print at its end.
func (f Figures) summary(s Scenario) string {
	if s.Action != "" {
		return fmt.Sprintf("%d restarts, median %.3f s", f.Restarts, f.PodRestart.Median)
	}
	return fmt.Sprintf("%d restarts, mean lateness %.3f s, kubelet CPU per restart %.1f ms", f.Restarts, f.Lateness.Mean, f.CPUPerRestart)
}
