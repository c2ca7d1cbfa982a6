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

package v1

// ContainerRestartRuleActionRestartPod restarts the pod in place (KEP-5532). All
// containers except ephemeral ones are stopped within the pod's grace period and
// started again from the first init container, regardless of their restart
// policies. It is valid on regular containers, init containers and sidecars
// while the feature gate RestartPodOnContainerExits is on.
const ContainerRestartRuleActionRestartPod ContainerRestartRuleAction = "RestartPod"

// PodRestarting is True from the exit that matches a rule with the action
// RestartPod until all containers of the pod have started again.
const PodRestarting PodConditionType = "PodRestarting"
