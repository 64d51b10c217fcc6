package app

import (
	"context"
	"errors"
	"sync"
)

// activity is work in the background that ends when it is told to, and not with the context it was
// begun under: what stops before what is Run's to say.
type activity struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once all of it has ended
	err    error         // then
}

// begin starts the work, each part in a goroutine of its own.
func begin(ctx context.Context, parts ...func(context.Context) error) *activity {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &activity{cancel: cancel, done: make(chan struct{})}
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, part := range parts {
		group.Go(func() { errs[i] = part(ctx) })
	}
	go func() {
		group.Wait()
		a.err = errors.Join(errs...)
		close(a.done)
	}()
	return a
}

// stop tells the work to end and waits until it has.
func (a *activity) stop() error {
	a.cancel()
	<-a.done
	return a.err
}

// endless is work that nothing but its context ends.
func endless(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}
