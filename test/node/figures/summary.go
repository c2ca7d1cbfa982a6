// SPDX-License-Identifier: Apache-2.0

// Package figures reads the resource use of processes and the metrics of servers, and
// summarizes samples, for measurements of nodes.
package figures

import (
	"math"
	"slices"
)

// Summary describes a sample. It is zero for an empty sample.
type Summary struct {
	Count  int     `json:"count"`
	Least  float64 `json:"least"`
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Worst  float64 `json:"worst"`
}

// Summarize returns the summary of a sample.
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
		// The nearest rank, without interpolation: with few values this is the worst one.
		P99:   s[int(math.Ceil(0.99*float64(len(s))))-1],
		Worst: s[len(s)-1],
	}
}
