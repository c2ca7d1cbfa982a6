// SPDX-License-Identifier: Apache-2.0

// Package deploy tests deploy/: the alerts, and the expressions of the dashboard.
// Its folders have the commands that record the metrics of a kubelet and draw the
// dashboard from such a recording.
package deploy
