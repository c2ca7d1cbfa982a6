// SPDX-License-Identifier: Apache-2.0

// Package figures is what measurements of nodes have in common: what they read from
// processes and servers, and how they sum it up.
package figures

import (
	"math"
	"slices"
)

// Summary describes a sample. It is all zero for an empty one.
type Summary struct {
	Count  int     `json:"count"`
	Least  float64 `json:"least"`
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Worst  float64 `json:"worst"`
}

// Summarize describes a sample.
func Summarize(sample []float64) Summary {
	if len(sample) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(sample))
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return Summary{
		Count:  len(s),
		Least:  s[0],
		Mean:   sum / float64(len(s)),
		Median: (s[(len(s)-1)/2] + s[len(s)/2]) / 2,
		// The nearest rank: with few values this is the worst, never a made-up one.
		P99:   s[int(math.Ceil(0.99*float64(len(s))))-1],
		Worst: s[len(s)-1],
	}
}
