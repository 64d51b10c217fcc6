package outboxtest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var crowds = topic{"many at once", []promise{
	{"publishers and owner at once lose nothing and repeat nothing", publishersAndOwner},
	{"the books balance at every moment", balancedThroughout},
	{"cancelling and finishing at once keep the books", cancelWhileFinishing},
	{"replaying and finishing at once keep the books", replayWhileFinishing},
}}

// together runs the jobs at once and fails the test if one of them fails.
func (w *world) together(jobs ...func() error) {
	w.Helper()
	errs := make([]error, len(jobs))
	var group sync.WaitGroup
	for i, job := range jobs {
		group.Go(func() { errs[i] = job() })
	}
	group.Wait()
	w.must(errors.Join(errs...))
}

func publishersAndOwner(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.config()
	const publishers, batches, size = 6, 15, 4
	publisher := func() error {
		for i := range batches {
			var batch []outbox.NewEvent
			for range size {
				event := w.event(acme, "a.b", `{}`)
				if i%3 == 0 {
					event.IdempotencyKey = event.ID.String()
				}
				batch = append(batch, event)
			}
			if _, err := w.persist(batch); err != nil {
				return err
			}
		}
		return nil
	}
	var jobs []func() error
	published := make(chan struct{})
	var group sync.WaitGroup
	for range publishers {
		group.Add(1)
		jobs = append(jobs, func() error { defer group.Done(); return publisher() })
	}
	jobs = append(jobs, func() error { group.Wait(); close(published); return nil })
	jobs = append(jobs, func() error {
		for {
			ended := false
			select {
			case <-published:
				ended = true
			default:
			}
			if done, err := w.routeSome(w.lease, acme, e); err != nil || done && ended {
				return err
			}
		}
	})
	w.together(jobs...)
	const count = publishers * batches * size
	seen := map[int64]bool{}
	events := map[outbox.EventID]bool{}
	for _, d := range w.pending(e, outbox.LaneLive) {
		seen[d.Sequence], events[d.Event] = true, true
	}
	w.equal("events planned", len(events), count)
	for n := range int64(count) {
		if !seen[n+1] {
			w.Errorf("number %d is missing", n+1)
		}
	}
	w.verify()
}

func balancedThroughout(w *world) {
	acme, globex := w.strangers("acme")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	w.own()
	stop := make(chan struct{})
	var proof error
	var group sync.WaitGroup
	group.Go(func() { proof = w.proveUntil(stop) })
	for range 15 {
		w.publishOne(globex, "a.b", `{}`)
		planned := w.plannedMany(acme, "a.b", 6)
		w.finish(w.delivered(planned[0]), w.failed(planned[1]), w.refused(planned[2]), w.delivered(planned[3]))
		w.replay(planned[0])
		w.replay(planned[2])
	}
	close(stop)
	group.Wait()
	w.must(proof)
}

// proveUntil proves the books again and again until stop is closed.
func (w *world) proveUntil(stop <-chan struct{}) error {
	for deep := false; ; deep = !deep {
		report, err := w.store.Verify(w.ctx, deep)
		if err != nil {
			return err
		}
		if !report.Balanced() {
			return fmt.Errorf("deep %v: not balanced: %+v", deep, report.Checks)
		}
		if report.Planned != report.Delivered+report.Dead+report.Cancelled+report.Pending {
			return fmt.Errorf("planned %d is not %d + %d + %d + %d", report.Planned, report.Delivered, report.Dead, report.Cancelled, report.Pending)
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

func cancelWhileFinishing(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	planned := w.plannedMany(acme, "a.b", 60)
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint})
	cancelled := 0
	w.together(func() error {
		for _, d := range planned {
			if err := again(func() error { _, err := w.store.Finish(w.ctx, []outbox.Result{w.delivered(d)}); return err }); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for {
			var ended outbox.Ended
			var done bool
			if err := again(func() (err error) {
				ended, done, err = w.store.Cancel(w.ctx, w.lease, row, 5, w.now)
				return err
			}); err != nil {
				return err
			}
			if cancelled += len(ended.Deliveries); done {
				return nil
			}
		}
	})
	report := w.verify()
	w.equal("cancelled", report.Cancelled, int64(cancelled))
	w.equal("delivered", report.Delivered, int64(len(planned)-cancelled))
	w.equal("pending", report.Pending, int64(0))
	w.equal("tries kept", len(w.attempts(planned[0])), 1)
	w.equal("tries kept", len(w.attempts(planned[len(planned)-1])), 1)
}

func replayWhileFinishing(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	planned := w.plannedMany(acme, "a.b", 30)
	for _, d := range planned {
		w.ask(d, outbox.StatePending)
	}
	rows := w.source(w.ofKind(outbox.OutboxReplay))
	w.together(func() error {
		for i, d := range planned {
			r := w.delivered(d)
			if i%2 == 0 {
				r = w.refused(d)
			}
			if err := again(func() error { _, err := w.store.Finish(w.ctx, []outbox.Result{r}); return err }); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for i := range rows {
			if err := again(func() error {
				_, err := w.store.Replay(w.ctx, w.lease, rows[i:i+1], w.now)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	// Each was either made due before its result came, or planned again after it.
	report := w.verify()
	w.equal("ended", report.Delivered+report.Dead, int64(len(planned)))
	w.equal("pending", report.Pending, report.Replayed)
	w.waiting(0)
}
