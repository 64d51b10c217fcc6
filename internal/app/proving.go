package app

import (
	"context"
	"slices"
	"time"
)

const (
	// proveFirst and proveEvery pace the proof of the books: soon after a start, when something
	// may just have gone wrong, then every hour. It reads every pending row's key once.
	proveFirst = time.Minute
	proveEvery = time.Hour
)

// prove proves the books for as long as ctx lasts, for the metric that says whether they balance.
// Only the process that has the first shard does, so that one of several does.
func (a *App) prove(ctx context.Context) {
	for wait := proveFirst; ; wait = proveEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if !slices.Contains(a.node.Shards(), 0) {
			continue
		}
		report, err := a.store.Verify(ctx, false)
		if err != nil {
			if ctx.Err() == nil {
				a.log.WarnContext(ctx, "the books cannot be proved now", "error", err)
			}
			continue
		}
		a.books.Proved(report)
		if !report.Balanced() {
			a.log.ErrorContext(ctx, "the books do not balance; run waybill verify --deep")
		}
	}
}
