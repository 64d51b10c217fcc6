package priority

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGate_withNoSmallWorkAboutNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		g.Small(1, time.Millisecond)
		time.Sleep(lately + 1)
		began := time.Now()
		var dones []func()
		for range 5 {
			dones = append(dones, g.Bulk(t.Context()))
		}
		for _, done := range dones {
			done()
		}
		if took := time.Since(began); took != 0 || !g.Quiet() {
			t.Errorf("five at once took %v", took)
		}
	})
}

func TestGate_besideSmallWorkBulkGoesByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		g.Small(1, time.Millisecond)
		var now, most atomic.Int32
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				done := g.Bulk(t.Context())
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(20 * time.Millisecond)
				now.Add(-1)
				done()
			})
		}
		all.Wait()
		if most.Load() != 1 {
			t.Errorf("%d ran at once", most.Load())
		}
	})
}

// share runs bulk transactions of 20 ms for a while beside small ones every 5 ms that take calm,
// or slowed while a bulk one is under way, and returns the part of the time that bulk work had.
func share(t *testing.T, calm, slowed time.Duration) float64 {
	g := New()
	for range 100 {
		g.Small(1, calm)
	}
	ctx, stop := context.WithCancel(t.Context())
	var at atomic.Int32
	var bulk time.Duration
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			done := g.Bulk(ctx)
			at.Add(1)
			time.Sleep(20 * time.Millisecond)
			at.Add(-1)
			bulk += 20 * time.Millisecond
			done()
		}
	})
	began := time.Now()
	for time.Since(began) < 20*time.Second {
		time.Sleep(5*time.Millisecond + 1)
		if at.Load() > 0 {
			g.Small(1, slowed)
		} else {
			g.Small(1, calm)
		}
	}
	stop()
	all.Wait()
	return bulk.Seconds() / time.Since(began).Seconds()
}

func TestGate_pausesAsLongAsSmallWorkSuffers(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		slowed      time.Duration
		least, most float64
	}{
		"bulk that hurts nobody runs on and on": {1 * ms, 0.99, 1},
		"a little slower is bearable":           {1900 * time.Microsecond, 0.99, 1},
		// However slow, it keeps the ninth that maxPause leaves it.
		"bulk that triples what small work takes": {3 * ms, 0.10, 0.13},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := share(t, ms, tc.slowed); got < tc.least || got > tc.most {
					t.Errorf("bulk work had %.3f of the time, want %v to %v", got, tc.least, tc.most)
				}
			})
		})
	}
}

// What a large transaction of small submissions takes says nothing about how the database does.
func TestGate_learnsFromSmallTransactionsAlone(t *testing.T) {
	g := New()
	for range 10 {
		g.Small(1, time.Millisecond)
		g.Small(smallRows+1, time.Second)
	}
	if g.pause != 0 || g.calm != time.Millisecond {
		t.Errorf("pauses %v times, calm is %v", g.pause, g.calm)
	}
}

func TestGate_theEndOfTheContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		g.Small(1, time.Millisecond)
		first := g.Bulk(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		g.Bulk(ctx)()
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %v", took)
		}
		first()
		g.Bulk(t.Context())() // the turn is free again
	})
}
