package api

import (
	"testing"
	"time"
)

func TestStamp_isRFC3339InMilliseconds(t *testing.T) {
	east := time.FixedZone("east", 5*60*60+30*60)
	for _, at := range []time.Time{
		time.Date(2026, 12, 1, 4, 5, 6, 0, time.UTC),
		time.Date(2026, 12, 1, 4, 5, 6, 7_999_999, time.UTC),
		time.Date(2026, 12, 1, 4, 5, 6, 89_000_001, time.UTC),
		time.Date(2026, 12, 1, 4, 5, 6, 999_999_999, east),
		time.Date(9999, 12, 31, 23, 59, 59, 120_000_000, time.UTC),
		time.Unix(0, 0),
	} {
		want := `"` + at.UTC().Format(stampLayout) + `"`
		if got := string(stamp(at).append(nil)); got != want {
			t.Errorf("%v is %s, want %s", at, got, want)
		}
	}
}

func BenchmarkStamp(b *testing.B) {
	at, into := stamp(time.Date(2026, 12, 1, 4, 5, 6, 7_000_000, time.UTC)), make([]byte, 0, 40)
	for b.Loop() {
		at.append(into)
	}
}
