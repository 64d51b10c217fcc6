package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// reports keeps a failing loop from filling the log: it speaks when it starts to fail, every half
// minute while it does, and when it is well again.
type reports struct {
	mu      sync.Mutex
	failing map[string]time.Time // when it last spoke
}

// report notes how a loop's last round went.
func (n *Node) report(ctx context.Context, loop string, err error) {
	if ctx.Err() != nil || errors.Is(err, errLeaseOver) {
		return
	}
	r := &n.reports
	r.mu.Lock()
	last, failing := r.failing[loop]
	now := time.Now()
	speak := false
	switch {
	case err == nil && failing:
		delete(r.failing, loop)
		speak = true
	case err != nil && (!failing || now.Sub(last) > 30*time.Second):
		if r.failing == nil {
			r.failing = map[string]time.Time{}
		}
		r.failing[loop] = now
		speak = true
	}
	r.mu.Unlock()
	if speak && err != nil {
		n.cfg.Log.WarnContext(ctx, loop+" fails; retrying", "error", err)
	} else if speak {
		n.cfg.Log.InfoContext(ctx, loop+" works again")
	}
}
