// SPDX-License-Identifier: Apache-2.0

//go:build race

package restartpod

func init() { underRace = true }
