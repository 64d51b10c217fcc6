package bench

import (
	"encoding/json"
	"testing"
	"time"
)

func TestPayload_isJSONAndReadsBack(t *testing.T) {
	at := time.Unix(0, 1_764_500_123_456_789_012)
	p := appendPayload([]byte("before"), 1_234_567_890, at)[len("before"):]
	if len(p) != Size {
		t.Fatalf("%d bytes, want %d", len(p), Size)
	}
	var v struct {
		At int64
		N  string
	}
	if err := json.Unmarshal(p, &v); err != nil || v.At != at.UnixNano() || v.N != "1234567890" {
		t.Fatalf("%s: %+v, %v", p[:60], v, err)
	}
	n, back, ok := readPayload(p)
	if !ok || n != 1_234_567_890 || !back.Equal(at) {
		t.Fatalf("read %d, %v, %v", n, back, ok)
	}
}

// A thousand durations of 1 to 1,000 ms: half lie below 500 ms, 99 % below 990 ms.
func TestHistogram_quantiles(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		got := h.quantile(q)
		if got < want || got > want*103/100 {
			t.Errorf("quantile %v is %v, want %v or up to 3 %% more", q, got, want)
		}
	}
}
