package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// process is one node with its way to the database and to the customers' servers.
type process struct {
	h    *history
	name string
	node *Node
	line *line
	life context.Context // ends when it is killed
	die  context.CancelFunc
	stop func() error
	gone atomic.Bool // killed, or asked to stop
}

func (h *history) start() *process {
	p := &process{h: h, name: fmt.Sprintf("node %d", len(h.processes)+1)}
	p.life, p.die = context.WithCancel(context.Background())
	p.line = &line{
		Store: h.store, bubble: &h.bubble, faults: h.faults, crash: p.kill,
		rand: rand.New(rand.NewPCG(h.rand.Uint64(), 1)),
		note: func(format string, args ...any) { h.note(p.name+": "+format, args...) },
	}
	clock := &outbox.Clock{}
	p.node = New(Config{
		Store:     p.line,
		Sender:    &simSender{p: p, clock: clock, urls: map[any]string{}},
		Clock:     clock,
		Log:       slog.New(slog.NewTextHandler(diary{p}, &slog.HandlerOptions{ReplaceAttr: untimed})),
		Wake:      simWake{p},
		Exclusive: h.exclusive,
		Retry:     outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 100 * time.Millisecond},
		Grace:     5 * time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p.stop = func() error {
		cancel()
		return <-ended
	}
	h.crew.Lock()
	h.processes = append(h.processes, p)
	h.crew.Unlock()
	h.note("%s starts", p.name)
	h.bubble.Go(func() {
		ended <- p.node.Run(ctx)
		close(ended)
	})
	return p
}

// diary writes what a process logs into its history.
type diary struct{ p *process }

func (d diary) Write(line []byte) (int, error) {
	d.p.h.note("%s: %s", d.p.name, strings.TrimSpace(string(line)))
	return len(line), nil
}

// untimed leaves out what the history says itself.
func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// simWake tells the other processes.
type simWake struct{ p *process }

func (w simWake) Wake(up outbox.Wakeup) {
	for _, other := range w.p.h.living() {
		if other != w.p {
			other.node.Woken(up)
		}
	}
}

// end stops the process in order, and waits for it.
func (p *process) end() {
	if p.gone.Swap(true) {
		return
	}
	p.excuse() // results that the database does not take within the grace are forgotten
	if err := p.stop(); err != nil {
		p.h.note("%s: %v", p.name, err)
	}
	p.die()
}

// kill takes the process's connections away, all at once. What it had not recorded is forgotten.
func (p *process) kill() {
	p.line.mu.Lock()
	was := p.line.dead
	p.line.dead = true
	p.line.mu.Unlock()
	if was || p.gone.Swap(true) && p.life.Err() != nil {
		return
	}
	p.excuse()
	p.node.mu.Lock()
	p.node.sched.paused = true
	p.node.mu.Unlock()
	p.h.hangUp(p)
	p.die()
	p.h.bubble.Go(func() { _ = p.stop() }) // its loops find no database and end
}

// excuse notes what the process may have sent without its result being recorded.
func (p *process) excuse() {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	for _, w := range p.node.sched.taken {
		if !w.started.IsZero() && w.target != nil {
			p.h.servers[w.target.endpoint.URL].of(w.due.Event).excuses++
		}
	}
}

// crashSoon makes the process end at a call to the database from now.
func (p *process) crashSoon(calls int, before bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.line.crashIn, p.line.before = calls, before
}

// cutOff keeps everything the process says from the database for a while.
func (p *process) cutOff(d time.Duration) {
	p.h.note("%s is cut off for %v", p.name, d) // not while the line is locked: those who hold the history look at lines
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.line.cut != nil || p.line.dead {
		return
	}
	cut := make(chan struct{})
	p.line.cut = cut
	p.h.bubble.Go(func() {
		select {
		case <-time.After(d):
		case <-p.life.Done():
		}
		p.line.mu.Lock()
		defer p.line.mu.Unlock()
		if p.line.cut == cut {
			p.line.cut = nil
			close(cut)
		}
	})
}

// well lets nothing go wrong from now on.
func (p *process) well() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.line.faults, p.line.crashIn = 0, 0
	if p.line.cut != nil {
		close(p.line.cut)
		p.line.cut = nil
	}
}
