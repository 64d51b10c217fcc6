package receive

import "sync"

// inflight counts what runs beside the requests. It is a sync.WaitGroup that may be added to while
// somebody waits: requests still come in during a shutdown.
type inflight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil if nobody waits
}

// Go runs f.
func (i *inflight) Go(f func()) {
	i.begin()
	go func() {
		defer i.done()
		f()
	}()
}

// begin counts something in that done counts out.
func (i *inflight) begin() {
	i.mu.Lock()
	i.n++
	i.mu.Unlock()
}

func (i *inflight) done() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n--; i.n == 0 && i.idle != nil {
		close(i.idle)
		i.idle = nil
	}
}

// Idle is closed once nothing runs.
func (i *inflight) Idle() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n == 0 {
		idle := make(chan struct{})
		close(idle)
		return idle
	}
	if i.idle == nil {
		i.idle = make(chan struct{})
	}
	return i.idle
}
