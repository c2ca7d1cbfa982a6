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

// The action and the condition of RestartAllContainers, which this release does not have. The
// code that restarts pods is the same in every release and uses them.

// ContainerRestartRuleActionRestartAllContainers is an action of later releases. In this release
// the API server rejects it, and the kubelet treats it as an unknown action.
const ContainerRestartRuleActionRestartAllContainers ContainerRestartRuleAction = "RestartAllContainers"

// AllContainersRestarting is a condition of later releases. Nothing sets it in this one.
const AllContainersRestarting PodConditionType = "AllContainersRestarting"
