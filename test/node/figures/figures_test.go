// SPDX-License-Identifier: Apache-2.0

package figures

import "testing"

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 0, 200)
	for i := 200; i > 0; i-- {
		hundred = append(hundred, float64(i))
	}
	if s := Summarize(hundred); s.P99 != 198 || s.Median != 100.5 || s.Least != 1 || s.Worst != 200 || hundred[0] != 200 {
		t.Errorf("Summarize(200…1) = %+v", s)
	}
	if s := Summarize([]float64{4}); s != (Summary{1, 4, 4, 4, 4, 4}) {
		t.Errorf("Summarize(4) = %+v", s)
	}
	if s := Summarize(nil); s != (Summary{}) {
		t.Errorf("Summarize() = %+v, want zero", s)
	}
}

func TestParseCPU(t *testing.T) {
	stat := "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 250 150 7 8 20 0 30 0 12345 1 1"
	if got, err := parseCPU([]byte(stat)); err != nil || got != 4 {
		t.Errorf("parseCPU = %v, %v, want 4 s", got, err)
	}
	for _, bad := range []string{"", "42 kubelet S 1", "42 (kubelet) S 1 2"} {
		if _, err := parseCPU([]byte(bad)); err == nil {
			t.Errorf("parseCPU(%q): want an error", bad)
		}
	}
}

func TestParseBusy(t *testing.T) {
	used, stolen, err := parseBusy([]byte("cpu  100 10 40 900 800 20 30 5 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil || used != 2 || stolen != 0.05 {
		t.Errorf("parseBusy = %v, %v, %v, want 2 s and 0.05 s", used, stolen, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu a 0 0 0 0 0 0 0", "intr 1 2 3 4 5 6 7 8"} {
		if _, _, err := parseBusy([]byte(bad)); err == nil {
			t.Errorf("parseBusy(%q): want an error", bad)
		}
	}
}

func TestParseMemory(t *testing.T) {
	if got, err := parseMemory([]byte("Name:\ta\nVmHWM:\t 9 kB\nVmRSS:\t   4 kB\n")); err != nil || got != 4096 {
		t.Errorf("parseMemory = %v, %v, want 4096", got, err)
	}
	if _, err := parseMemory([]byte("Name:\ta\n")); err == nil {
		t.Error("parseMemory without VmRSS: want an error")
	}
}
