// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
)

// median returns the median of each figure over several rounds, because other load on
// the machine makes one round worse, and seldom most of them. Charts show the last
// round, except that of lateness, which shows all. The error of a median also uses all
// rounds.
func median(rounds []Figures) Figures {
	m := rounds[len(rounds)-1]
	all := make([]reflect.Value, len(rounds))
	for i := range rounds {
		all[i] = reflect.ValueOf(rounds[i])
	}
	setMedian(reflect.ValueOf(&m).Elem(), all)
	m.late, m.amid = nil, nil
	for _, r := range rounds {
		m.late, m.amid = append(m.late, r.late...), append(m.amid, r.amid...)
	}
	m.HealthyError = errorOfMedian(m.amid)
	return m
}

// setMedian sets all numbers in the exported fields of a value.
func setMedian(to reflect.Value, all []reflect.Value) {
	middle := func(of func(reflect.Value) float64) float64 {
		sample := make([]float64, len(all))
		for i, v := range all {
			sample[i] = of(v)
		}
		return figures.Summarize(sample).Median
	}
	switch to.Kind() {
	case reflect.Float64:
		to.SetFloat(middle(reflect.Value.Float))
	case reflect.Int:
		to.SetInt(int64(middle(func(v reflect.Value) float64 { return float64(v.Int()) })))
	case reflect.Struct:
		for i := range to.NumField() {
			if !to.Type().Field(i).IsExported() {
				continue
			}
			fields := make([]reflect.Value, len(all))
			for j, v := range all {
				fields[j] = v.Field(i)
			}
			setMedian(to.Field(i), fields)
		}
	case reflect.Map:
		// The map of a round must not change.
		to.Set(reflect.MakeMap(to.Type()))
		for _, v := range all {
			for _, key := range v.MapKeys() {
				to.SetMapIndex(key, reflect.ValueOf(middle(func(v reflect.Value) float64 {
					if got := v.MapIndex(key); got.IsValid() {
						return got.Float()
					}
					return 0
				})))
			}
		}
	}
}
