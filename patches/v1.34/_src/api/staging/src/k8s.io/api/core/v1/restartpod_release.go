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

// The action and the condition of RestartAllContainers, which this release does not have. What
// restarts pods is the same code in every release, and names them.

// ContainerRestartRuleActionRestartAllContainers is an action of later releases. No API server of
// this one takes it, and to its kubelets it is an action that is not known.
const ContainerRestartRuleActionRestartAllContainers ContainerRestartRuleAction = "RestartAllContainers"

// AllContainersRestarting is a condition of later releases. Nothing sets it here.
const AllContainersRestarting PodConditionType = "AllContainersRestarting"
