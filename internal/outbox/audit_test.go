package outbox

import (
	"testing"
	"time"
)

func TestNewAuditID_sortsByTheMicrosecond(t *testing.T) {
	at := time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)
	last := NewAuditID(at)
	for range 5000 {
		at = at.Add(time.Microsecond)
		next := NewAuditID(at)
		if next.String() <= last.String() {
			t.Fatalf("%s at %v is not behind %s", next, at, last)
		}
		if next[6]>>4 != 7 || next[8]>>6 != 2 {
			t.Fatalf("%x is no UUIDv7", next)
		}
		if !next.Time().Equal(at.Truncate(time.Millisecond)) {
			t.Fatalf("%s is of %v, want %v", next, next.Time(), at)
		}
		last = next
	}
}
