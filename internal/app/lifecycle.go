package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lifecycle stops what was started: last in, first out, each once, each bounded in time. A part
// that does not stop in time does not keep the others from stopping.
type lifecycle struct {
	mu    sync.Mutex
	stops []stop
}

type stop struct {
	name   string
	within time.Duration
	do     func(ctx context.Context) error
}

// onStop registers how to stop what was just started.
func (l *lifecycle) onStop(name string, within time.Duration, do func(ctx context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = append(l.stops, stop{name, within, do})
}

// stop stops everything that was registered.
func (l *lifecycle) stop() error {
	l.mu.Lock()
	stops := l.stops
	l.stops = nil
	l.mu.Unlock()
	var errs []error
	for i := len(stops) - 1; i >= 0; i-- {
		s := stops[i]
		ctx, cancel := context.WithTimeout(context.Background(), s.within)
		done := make(chan error, 1)
		go func() { done <- s.do(ctx) }()
		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
			}
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("stop %s: not done after %v", s.name, s.within))
		}
		cancel()
	}
	return errors.Join(errs...)
}
