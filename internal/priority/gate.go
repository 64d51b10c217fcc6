package priority

import (
	"context"
	"sync"
	"time"
)

const (
	// lately is for how long bulk work gives way after the last small transaction, and how long
	// after the last bulk work small transactions are as they are without.
	lately = 2 * time.Second
	// smallRows is how many rows a small transaction has that tells how the database does.
	smallRows = 10
	// Bulk work pauses longer with every small transaction that took more than slow times what it
	// takes without bulk work, and less with every other one: the steps are such that the pauses
	// settle where one in a hundred is slow.
	slow   = 2
	longer = 0.4
	less   = longer / 99
	// maxPause is how many times its own duration bulk work pauses at most, so that it keeps a
	// ninth of the time whatever makes the small transactions slow.
	maxPause = 8.0
)

// Gate lets bulk work pass by turns while small work is about. The nil Gate holds nobody up.
type Gate struct {
	turn chan struct{} // holds one token while a turn is taken

	mu    sync.Mutex
	small time.Time     // when small work was last seen
	calm  time.Duration // what a small transaction takes with no bulk work beside it
	pause float64       // how many times its own duration bulk work pauses
	bulk  time.Time     // when bulk work was last begun or over
	until time.Time     // no turn begins before
}

// New returns a gate that is open.
func New() *Gate { return &Gate{turn: make(chan struct{}, 1)} }

// Small notes a small transaction of so many rows.
func (g *Gate) Small(rows int, took time.Duration) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.small = now
	if rows > smallRows {
		return
	}
	switch {
	case g.calm == 0:
		g.calm = took
	case took < g.calm || now.Sub(g.bulk) > lately:
		g.calm += (took - g.calm) / 16
	default:
		g.calm += g.calm / 1024 // under bulk work without end the database may become slower
	}
	if took > slow*g.calm {
		g.pause = min(g.pause+longer, maxPause)
	} else {
		g.pause = max(g.pause-less, 0)
	}
}

// Quiet reports whether no small work is about.
func (g *Gate) Quiet() bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.small) > lately
}

// Bulk waits until bulk work may begin, at most until ctx ends; the caller calls done when it is
// over.
func (g *Gate) Bulk(ctx context.Context) (done func()) {
	if g == nil {
		return func() {}
	}
	inTurn := !g.Quiet() && g.take(ctx)
	began := time.Now()
	g.mu.Lock()
	g.bulk = began
	g.mu.Unlock()
	return func() {
		now := time.Now()
		g.mu.Lock()
		g.bulk = now
		g.until = now.Add(time.Duration(g.pause * float64(now.Sub(began))))
		g.mu.Unlock()
		if inTurn {
			<-g.turn
		}
	}
}

// take waits for a turn and for the end of the pause before it; false if ctx ended first.
func (g *Gate) take(ctx context.Context) bool {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	g.mu.Lock()
	pause := time.NewTimer(time.Until(g.until))
	g.mu.Unlock()
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		<-g.turn
		return false
	}
}
