// SPDX-License-Identifier: Apache-2.0

package config

// The feature gates for restarts, with the KEP and the stages of each.
const (
	// KubeletCrashLoopBackOffMax allows a maximum delay for each node: KEP-5593,
	// alpha in 1.32, beta and on since 1.35.
	KubeletCrashLoopBackOffMax = "KubeletCrashLoopBackOffMax"
	// ReduceDefaultCrashLoopBackOffDecay sets the delays of a node without such a
	// maximum to 1 s up to 60 s: KEP-4603, alpha since 1.33.
	ReduceDefaultCrashLoopBackOffDecay = "ReduceDefaultCrashLoopBackOffDecay"
	// KubeletDelayFirstContainerRestart makes the first restart wait too:
	// kubernetes/kubernetes#133472, alpha. Upstream does not have it.
	KubeletDelayFirstContainerRestart = "KubeletDelayFirstContainerRestart"
	// KubeletStrictCrashLoopBackOff makes two kinds of containers wait like a
	// container that exited: one that the kubelet killed, for example after a
	// failed liveness probe, and one that failed to start. Beta, on. Off restores
	// upstream's doBackOff. Upstream does not have the gate.
	KubeletStrictCrashLoopBackOff = "KubeletStrictCrashLoopBackOff"
	// KubeletRelistOnExit makes the kubelet see exits when the runtime reports them: beta, on.
	// Off restores the look at the runtime once a second. Upstream does not have it.
	KubeletRelistOnExit = "KubeletRelistOnExit"
	// KubeletCachedStatusInBackOff makes the end of a wait act on the known status of the pod:
	// kubernetes/kubernetes#123602, beta, on. Off restores the wait for a newer status. Upstream
	// does not have it.
	KubeletCachedStatusInBackOff = "KubeletCachedStatusInBackOff"
	// KubeletPatchPodStatusWithoutGet makes the kubelet write the status of a pod without reading
	// it first: beta, on. Upstream does not have it.
	KubeletPatchPodStatusWithoutGet = "KubeletPatchPodStatusWithoutGet"
	// KubeletFirstStartsFirst makes restarts wait for first starts of pods: beta, on since 1.34.
	// Upstream does not have it.
	KubeletFirstStartsFirst = "KubeletFirstStartsFirst"
	// KubeletRestartAtAnnotation ends a wait at the time that an annotation of the pod has:
	// kubernetes/kubernetes#57291, alpha. Upstream does not have it.
	KubeletRestartAtAnnotation = "KubeletRestartAtAnnotation"
	// KubeletMaxRestartsAnnotation ends a pod after the number of restarts in a row that an
	// annotation of the pod allows: KEP-3322, alpha. Upstream does not have it.
	KubeletMaxRestartsAnnotation = "KubeletMaxRestartsAnnotation"
	// KubeletRestartBackOffAnnotation gives containers the back-off that annotations of the pod
	// ask for: kubernetes/kubernetes#57291, alpha. Upstream does not have it.
	KubeletRestartBackOffAnnotation = "KubeletRestartBackOffAnnotation"
	// ContainerRestartRules allows a restart policy and rules for each container:
	// KEP-5307, alpha in 1.34, beta and on since 1.35.
	ContainerRestartRules = "ContainerRestartRules"
	// RestartAllContainersOnContainerExits allows the action
	// RestartAllContainers in these rules: KEP-5532, alpha in 1.35, beta and on
	// since 1.36.
	RestartAllContainersOnContainerExits = "RestartAllContainersOnContainerExits"
	// KubeletRestartAllContainersBackOff handles the action RestartAllContainers
	// with restartpod and the pod's back-off: beta, on. Off restores upstream's
	// implementation. Upstream does not have the gate.
	KubeletRestartAllContainersBackOff = "KubeletRestartAllContainersBackOff"
	// RestartPodOnContainerExits allows the action RestartPod in these rules: an
	// earlier form of KEP-5532, alpha. Upstream does not have it.
	RestartPodOnContainerExits = "RestartPodOnContainerExits"
)
