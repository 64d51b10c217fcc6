package app

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// A node that no longer reads the outbox has nothing in memory and finds itself idle: what was
// accepted must be compared with what was taken up.
func TestHeadWatch_whatIsAcceptedMustBeTakenUp(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		look  func(second int) (heads map[outbox.Shard]int64, routed int64)
		stuck bool
	}{
		"nothing waits":           {func(int) (map[outbox.Shard]int64, int64) { return nil, 0 }, false},
		"one row stands still":    {func(int) (map[outbox.Shard]int64, int64) { return map[outbox.Shard]int64{7: 100}, 5 }, true},
		"heads move on":           {func(n int) (map[outbox.Shard]int64, int64) { return map[outbox.Shard]int64{7: int64(n)}, 5 }, false},
		"others are routed":       {func(n int) (map[outbox.Shard]int64, int64) { return map[outbox.Shard]int64{7: 100}, int64(n) }, false},
		"one of two stands still": {func(n int) (map[outbox.Shard]int64, int64) { return map[outbox.Shard]int64{7: 100, 8: int64(n)}, 5 }, true},
		"it was taken up at last": {func(n int) (map[outbox.Shard]int64, int64) { return map[outbox.Shard]int64{7: int64(100 + n/25)}, 5 }, false},
		"the shard is another's now": {func(n int) (map[outbox.Shard]int64, int64) {
			if n > 25 {
				return map[outbox.Shard]int64{}, 5
			}
			return map[outbox.Shard]int64{7: 100}, 5
		}, false},
	} {
		var w headWatch
		for second := 0; second <= 30; second += 5 {
			heads, routed := c.look(second)
			w.look(heads, routed, start.Add(time.Duration(second)*time.Second))
		}
		if got := w.problem(); (got != "") != c.stuck {
			t.Errorf("%s: %q", name, got)
		}
	}
}
