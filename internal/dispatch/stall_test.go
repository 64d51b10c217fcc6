package dispatch

import (
	"strings"
	"testing"
	"time"
)

func TestStall_isWorkThatNobodyDoes(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		each func(s *stall, second int) (queued, runnable int)
		want string
	}{
		"nothing to do":                     {func(*stall, int) (int, int) { return 0, 0 }, ""},
		"everything is done":                {func(s *stall, _ int) (int, int) { s.routed++; s.started++; return 9, 9 }, ""},
		"accepted and never routed":         {func(s *stall, _ int) (int, int) { s.started++; return 1, 1 }, "none was routed for 20 s"},
		"due and never tried":               {func(s *stall, _ int) (int, int) { s.routed++; return 1, 1 }, "none was tried for 20 s"},
		"it stood still and went on":        {func(s *stall, second int) (int, int) { s.routed += int64(second / 20); return 1, 0 }, ""},
		"now and then there is nothing":     {func(_ *stall, second int) (int, int) { return second % 10, second % 10 }, ""},
		"it began to stand still ten s ago": {func(_ *stall, second int) (int, int) { return second / 10, 0 }, ""},
	} {
		var s stall
		for second := range 21 {
			queued, runnable := c.each(&s, second)
			s.look(start.Add(time.Duration(second)*time.Second), queued, runnable)
		}
		got := Status{Stalled: s.problem()}.Problem(time.Hour)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
