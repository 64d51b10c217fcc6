package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// sized is a store that only says how large it is.
type sized struct {
	outbox.Store
	vitals outbox.Vitals
}

func (s *sized) Vitals(context.Context, time.Time) (outbox.Vitals, error) { return s.vitals, nil }

func TestApp_keepsDaysAsLongAsTheyFit(t *testing.T) {
	now := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	daysAgo := func(n int) time.Time { return now.Truncate(day).AddDate(0, 0, -n) }
	for _, c := range []struct {
		name   string
		limit  int64
		bytes  int64
		oldest time.Time
		pruned time.Time
		want   time.Time // events from before this day go
	}{
		{"no limit", 0, 1 << 40, daysAgo(30), time.Time{}, now.Add(-30 * day)},
		{"below the limit", 100, 100, daysAgo(30), time.Time{}, now.Add(-30 * day)},
		{"above it, the oldest day goes", 100, 101, daysAgo(20), time.Time{}, daysAgo(19)},
		{"above it, but the oldest may be needed", 100, 101, daysAgo(4), time.Time{}, now.Add(-7 * day)},
		{"above it, and nothing is there", 100, 101, time.Time{}, time.Time{}, now.Add(-7 * day)},
		{"somebody asked", 0, 0, daysAgo(30), daysAgo(10), daysAgo(10)},
		{"somebody asked for what goes anyway", 0, 0, daysAgo(30), daysAgo(90), now.Add(-30 * day)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &App{
				cfg:   config.Config{Retention: 30 * day, MaxPendingAge: 5 * day, RetentionBytes: c.limit},
				log:   slog.New(slog.DiscardHandler),
				store: &sized{vitals: outbox.Vitals{Bytes: c.bytes, OldestDay: c.oldest}},
			}
			if !c.pruned.IsZero() {
				a.pruned.before.Store(&c.pruned)
			}
			keep, err := a.keepDays(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			if got := now.Add(-keep); !got.Equal(c.want) {
				t.Errorf("what is from before %v goes, want %v", got, c.want)
			}
		})
	}
}

func TestApp_prunesNothingThatMayBeNeeded(t *testing.T) {
	now := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	a := &App{cfg: config.Config{MaxPendingAge: 5 * day}, pruned: pruning{asked: make(chan struct{}, 1)}}
	a.clock.Set(now, time.Now())
	if got, want := a.Prune(now), time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("pruned before %v, want %v", got, want)
	}
	old := time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC)
	if got, want := a.Prune(old), old.Truncate(day); !got.Equal(want) {
		t.Errorf("pruned before %v, want %v", got, want)
	}
	if got := *a.pruned.before.Load(); !got.Equal(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("what was asked first is forgotten: %v", got)
	}
}
