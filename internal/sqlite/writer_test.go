package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// hold keeps the writer busy until release is called, which returns how the transaction ended.
func hold(t *testing.T, s *Store) (release func() error) {
	t.Helper()
	began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.write(context.Background(), func(*session) error {
			close(began)
			<-goOn
			return nil
		})
	}()
	<-began
	return func() error {
		close(goOn)
		return <-done
	}
}

// queued waits until so many jobs wait for the writer.
func (s *Store) queued(t *testing.T, n int) {
	t.Helper()
	for len(s.writer.jobs) < n {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// together makes the store run all the writes in one transaction, by starting them while the
// writer is busy, and reports how each ended.
func together(t *testing.T, s *Store, writes ...func() error) []error {
	t.Helper()
	release := hold(t, s)
	errs := make([]error, len(writes))
	var all sync.WaitGroup
	for i, write := range writes {
		all.Go(func() { errs[i] = write() })
		s.queued(t, i+1) // in this order
	}
	_ = release() // as the transaction ends, which is the test's business
	all.Wait()
	return errs
}

func TestWriter_oneFailingMemberHarmsNobody(t *testing.T) {
	s := newStore(t)
	tenant := newTenant(t, s)
	publish := func(events ...outbox.NewEvent) func() error {
		return func() error {
			_, _, err := s.InsertEvents(context.Background(), events)
			return err
		}
	}
	good1, good2, halfway, refused := newEvent(tenant), newEvent(tenant), newEvent(tenant), newEvent(tenant)
	refused.Type = "" // a CHECK stands against it
	callers := errors.New("the caller thought better of it")
	errs := together(t, s,
		publish(good1),
		publish(halfway, refused),
		func() error {
			_, err := s.EditTenant(context.Background(), "acme", good1.CreatedAt, func(*outbox.Tenant) error { return callers })
			return err
		},
		publish(good2),
	)
	for i, check := range []bool{errs[0] == nil, outbox.FaultOf(errs[1]) == outbox.FaultRefused, errors.Is(errs[2], callers), errs[3] == nil} {
		if !check {
			t.Errorf("member %d: %v", i, errs[i])
		}
	}
	for id, want := range map[outbox.EventID]int{good1.ID: 1, good2.ID: 1, halfway.ID: 0, refused.ID: 0} {
		if n := s.count(t, "SELECT count(*) FROM waybill_event WHERE id = ?", id[:]); n != want {
			t.Errorf("event %s: %d rows, want %d", id, n, want)
		}
		if n := s.count(t, "SELECT count(*) FROM waybill_outbox WHERE event = ?", id[:]); n != want {
			t.Errorf("event %s: %d outbox rows, want %d", id, n, want)
		}
	}
}

func TestWriter_aPanicReachesItsCallerAlone(t *testing.T) {
	s := newStore(t)
	tenant := newTenant(t, s)
	event := newEvent(tenant)
	var raised any
	errs := together(t, s,
		func() error {
			defer func() { raised = recover() }()
			_, err := s.EditTenant(context.Background(), "acme", event.CreatedAt, func(*outbox.Tenant) error { panic("of the caller") })
			return err
		},
		func() error {
			_, _, err := s.InsertEvents(context.Background(), []outbox.NewEvent{event})
			return err
		},
	)
	if raised != "of the caller" || errs[1] != nil {
		t.Errorf("raised %v; the other: %v", raised, errs[1])
	}
	if n := s.count(t, "SELECT count(*) FROM waybill_event"); n != 1 {
		t.Errorf("%d events, want the other member's", n)
	}
}

func TestWriter_whoGivesUpInTheQueueIsNotWritten(t *testing.T) {
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	release := hold(t, s)
	ran := false
	ended := make(chan error)
	go func() { ended <- s.write(ctx, func(*session) error { ran = true; return nil }) }()
	s.queued(t, 1)
	cancel()
	err := <-ended // while the writer is still busy
	if err := release(); err != nil {
		t.Error(err)
	}
	if !errors.Is(err, context.Canceled) || outbox.FaultOf(err) != outbox.FaultRetry {
		t.Errorf("%v, want a fault to retry", err)
	}
	if err := s.write(t.Context(), func(*session) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if ran {
		t.Error("it ran after its caller was told that it did not")
	}
}

// A full disk ends SQLite's transaction by itself. Statements that went on would each commit
// alone; the members before would be answered as written.
func TestWriter_aFullDiskLosesTheWholeTransactionAndSaysSo(t *testing.T) {
	s := newStore(t)
	tenant := newTenant(t, s)
	pages := func(n int) {
		t.Helper()
		if err := s.write(t.Context(), func(w *session) error {
			return w.each(fmt.Sprintf("PRAGMA max_page_count = %d", n), nil, func(scan) error { return nil })
		}); err != nil {
			t.Fatal(err)
		}
	}
	pages(s.count(t, "PRAGMA page_count") + 20)
	small, large, after := newEvent(tenant), newEvent(tenant), newEvent(tenant)
	large.Payload = make([]byte, 1<<20)
	errs := together(t, s,
		func() error {
			_, _, err := s.InsertEvents(context.Background(), []outbox.NewEvent{small})
			return err
		},
		func() error {
			_, _, err := s.InsertEvents(context.Background(), []outbox.NewEvent{large})
			return err
		},
		func() error {
			_, _, err := s.InsertEvents(context.Background(), []outbox.NewEvent{after})
			return err
		},
	)
	written := 0
	for i, err := range errs {
		if err == nil {
			written++
		} else if outbox.FaultOf(err) != outbox.FaultRetry {
			t.Errorf("member %d: %v, want a fault to retry", i, err)
		}
	}
	if errs[1] == nil {
		t.Error("an event larger than the disk was accepted")
	}
	if n := s.count(t, "SELECT count(*) FROM waybill_event"); n != written {
		t.Errorf("%d events are stored, %d were answered", n, written)
	}
	pages(1 << 30)
	for _, e := range []outbox.NewEvent{small, large, after} {
		if _, _, err := s.InsertEvents(t.Context(), []outbox.NewEvent{e}); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	if n := s.count(t, "SELECT count(*) FROM waybill_event"); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}
