package app

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// lingerFor is how long a stopping server that is watched still answers. Its nodes' work ends
	// meanwhile, so that it lengthens a stop only where nothing is in flight; it is far below the
	// least grace that can be configured.
	lingerFor = 5 * time.Second
	// watchedWithin is the longest pause between two questions of a watcher.
	watchedWithin = 30 * time.Second
	// settledAfter tells a watcher, who goes on asking, from a script that waits for the start.
	settledAfter = 5 * time.Second
)

// watch notices whether somebody, a load balancer or an orchestrator, keeps asking if the server
// is ready. Such a one sends requests here until it has been told otherwise: a listener that
// closes at once would refuse them. Nobody else is waited for, so that Ctrl-C is immediate.
type watch struct {
	mu    sync.Mutex
	ready time.Time // of the first answer that the server is ready
	asked time.Time // of the last answer
}

// answered records that somebody asked and what the answer was.
func (w *watch) answered(ready bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ready && w.ready.IsZero() {
		w.ready = now
	}
	w.asked = now
}

// on reports whether somebody is watching.
func (w *watch) on(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.ready.IsZero() && w.asked.Sub(w.ready) >= settledAfter && now.Sub(w.asked) <= watchedWithin
}

// leaving has a client that reuses its connection leave with the next answer once the server stops.
// Connections that are idle at that moment stay open: a balancer that has not asked yet would send
// its next request into one that is just being closed.
func (a *App) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// linger goes on answering for a while, where somebody is to learn from /readyz that the server
// stops. Events that arrive meanwhile are accepted: they are stored as durably as ever, and
// another node, or this one's next start, sends them. Refusing them would make every publisher
// wait for something that needs no waiting.
func (a *App) linger(ctx context.Context) {
	if !a.watch.on(time.Now()) {
		return
	}
	a.log.InfoContext(ctx, "answering on while others learn that this server stops", "for", lingerFor.String())
	time.Sleep(lingerFor)
}
