package bench

import (
	"math"
	"time"
)

// histogram counts durations in steps of 2 %, from 10 µs to a quarter of an hour.
type histogram struct {
	counts [histogramSteps]int64
	total  int64
}

const (
	histogramSteps = 1024
	histogramBase  = 1.02
	histogramLeast = 10 * time.Microsecond
)

func (h *histogram) add(d time.Duration) {
	step := 0
	if d > histogramLeast {
		step = int(math.Log(float64(d)/float64(histogramLeast)) / math.Log(histogramBase))
	}
	h.counts[min(step, histogramSteps-1)]++
	h.total++
}

// quantile returns the upper edge of the step that holds the q-th part, 0 if nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	want := int64(math.Ceil(q * float64(h.total)))
	seen := int64(0)
	for step, n := range h.counts {
		if seen += n; seen >= want {
			return time.Duration(float64(histogramLeast) * math.Pow(histogramBase, float64(step+1)))
		}
	}
	return 0
}
