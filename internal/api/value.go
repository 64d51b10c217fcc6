package api

import (
	"time"
)

// stamp is a time as the API writes it: RFC 3339, UTC, milliseconds.
type stamp time.Time

const stampLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON writes the stamp.
func (s stamp) MarshalJSON() ([]byte, error) {
	return s.append(make([]byte, 0, len(stampLayout)+2)), nil
}

func (s stamp) append(b []byte) []byte {
	t := time.Time(s).UTC()
	b = append(b, '"')
	// The time package writes this layout several times as fast as one it does not know.
	b = t.AppendFormat(b, time.RFC3339)
	b[len(b)-1] = '.' // where the Z was
	ms := t.Nanosecond() / 1e6
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"')
}

// stampOf is null for a zero time.
func stampOf(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	return new(stamp(t))
}

// orNull is null for an empty value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// millis is a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
