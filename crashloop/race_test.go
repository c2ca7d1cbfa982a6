// SPDX-License-Identifier: Apache-2.0

//go:build race

package main

// The race detector takes up to ten times the CPU time and four times the memory.
func init() { slowdown, moreMemory = 10, 4 }
