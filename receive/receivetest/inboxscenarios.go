package receivetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
)

// drain runs what is due beside the test, and returns what waits for the end of it.
func (s *stage) drain(in *receive.Inbox) (wait func()) {
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := in.RunDue(context.WithoutCancel(s.Context())); err != nil {
			s.Error(err)
		}
	})
	return group.Wait
}

func inboxCrashAfterTake(s *stage) {
	entered, hang := make(chan struct{}), make(chan struct{})
	died, src := s.inbox(stripe(), func(context.Context, *receive.Delivery) error {
		close(entered)
		<-hang
		return errors.New("this process is dead")
	}, hurriedSettle)
	s.want(died, src, stageEvent, http.StatusOK)
	ended := s.drain(died)
	await(s, "the first run", entered)
	s.crash()
	next, _ := s.inbox(stripe(), s.effects.handle, func(c *receive.InboxConfig) { c.Source = src })
	s.count("runs while the lease lasts", Drain(s, next), 0)
	s.Advance(stageLease)
	s.count("runs after it", Drain(s, next), 1)
	s.count("takeovers", s.seen.of(receive.Takeover), 1)
	close(hang)
	ended()
	s.Advance(stageLease)
	s.count("runs after what the dead one said", Drain(s, next), 0)
	s.count("effects", s.effects.n(), 1)
}

func inboxCrashAfterEffect(s *stage) {
	first := true
	dying := func(h receive.Handler) receive.Handler {
		return func(ctx context.Context, d *receive.Delivery) error {
			err := h(ctx, d)
			if first {
				first = false
				s.crash()
				return errors.New("this process is dead")
			}
			return err
		}
	}
	in, src := s.inbox(stripe(), dying(s.effects.handle), hurriedSettle)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.Advance(stageLease)
	Drain(s, in)
	if runs := s.effects.runs; len(runs) != 2 || runs[1] != 2 {
		s.Errorf("runs %v: the second must be there, and know that it is", runs)
	}
	if s.Tx == nil {
		return
	}
	first = true
	in, src = s.inbox(stripe(), dying(s.Tx), hurriedSettle)
	s.want(in, src, `{"id":"evt_2"}`, http.StatusOK)
	for range 3 {
		Drain(s, in)
		s.Advance(stageLease)
	}
	s.count("effects in the event's own transaction", s.Effects(), 1)
}

// hurriedSettle is for runs whose settlement fails: an Inbox tries it for as long as its lease lasts.
func hurriedSettle(c *receive.InboxConfig) {
	c.Deadline, c.Grace = 500*time.Millisecond, time.Millisecond
}

func inboxAnswerLost(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	Post(s, in, src, stageEvent)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.count("effects", s.effects.n(), 1)
	s.count("duplicates", s.seen.of(receive.Duplicate), 2)
}

func inboxOvertaken(s *stage, end error) {
	a, b := make(chan struct{}), make(chan struct{})
	entered := make(chan int, 3)
	in, src := s.inbox(stripe(), func(ctx context.Context, d *receive.Delivery) error {
		entered <- d.Run
		if d.Run == 1 {
			<-a
			return end
		}
		<-b
		return s.effects.handle(ctx, d)
	})
	s.want(in, src, stageEvent, http.StatusOK)
	endA := s.drain(in)
	await(s, "A", entered)
	s.Advance(stageLease)
	endB := s.drain(in)
	await(s, "B", entered)
	close(a)
	endA()
	s.count("settlements of A that were refused", s.seen.of(receive.ReleaseFailed)+s.seen.of(receive.ConfirmFailed), 1)
	s.count("runs beside B", Drain(s, in), 0)
	close(b)
	endB()
	s.Advance(stageLease)
	s.count("runs in the end", Drain(s, in), 0)
	s.count("effects", s.effects.n(), 1)
}

func inboxHundred(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	var group sync.WaitGroup
	var success, stored atomic.Int64
	for range 100 {
		request := Request(s, src, stageEvent)
		group.Go(func() {
			if Do(in, request).StatusCode == http.StatusOK {
				success.Add(1)
			}
		})
	}
	group.Wait()
	for _, o := range s.seen.all {
		if o.Outcome == receive.Stored {
			stored.Add(1)
		}
	}
	s.count("answered 2xx", int(success.Load()), 100)
	s.count("stored", int(stored.Load()), 1)
	s.count("runs", Drain(s, in), 1)
}

func inboxStoreDown(s *stage) {
	local := NewStore()
	in, src := s.inbox(stripe(), s.effects.handle)
	s.fail("put", 1, errRefused, false)
	s.want(in, src, stageEvent, http.StatusServiceUnavailable)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.count("effects", s.effects.n(), 1)

	safe, _ := s.inbox(stripe(), s.effects.handle, func(c *receive.InboxConfig) { c.Source, c.Fallback = src, local })
	s.fail("put", 1, errRefused, false)
	s.want(safe, src, `{"id":"evt_2"}`, http.StatusOK)
	s.count("events in the fallback", local.Len(), 1)
	Drain(s, safe)
	s.count("effects", s.effects.n(), 2)
}

func inboxNotHeard(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	s.fail("put", 1, context.DeadlineExceeded, true)
	s.want(in, src, stageEvent, http.StatusServiceUnavailable)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.count("effects", s.effects.n(), 1)

	hurried, _ := s.inbox(stripe(), s.effects.handle, func(c *receive.InboxConfig) { c.Source, c.StoreBudget = src, 100*time.Millisecond })
	s.delay("put", 1)
	s.want(hurried, src, `{"id":"evt_2"}`, http.StatusServiceUnavailable)
	if got := s.seen.last(receive.Failed).Reason; got != "store_slow" {
		s.Errorf("reason %q", got)
	}
	s.want(in, src, `{"id":"evt_2"}`, http.StatusOK)
	Drain(s, in)
	s.count("effects", s.effects.n(), 2)
}

// inboxConfirmFails: a success that is not recorded at once is recorded while the lease lasts.
func inboxConfirmFails(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	s.want(in, src, stageEvent, http.StatusOK)
	s.fail("settle", 2, errRefused, false)
	Drain(s, in)
	s.want(in, src, `{"id":"evt_2"}`, http.StatusOK)
	s.fail("settle", 1, errRefused, true)
	Drain(s, in)
	s.Advance(stageLease)
	s.count("runs after the lease", Drain(s, in), 0)
	s.count("effects", s.effects.n(), 2)
}

func inboxBodies(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle, func(c *receive.InboxConfig) { c.Source.MaxBody = 1000 })
	before := s.calls.Load()
	large := Request(s, src, strings.Repeat("x", 1001))
	large.ContentLength = -1
	s.count("too large", Do(in, large).StatusCode, 413)
	s.count("calls of the store", int(s.calls.Load()-before), 0)
	for _, body := range oddBodies {
		s.want(in, src, body, http.StatusOK)
		Drain(s, in)
	}
	s.bodies(oddBodies)
}

func inboxForged(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	s.forged(in, src)
}

func inboxSpoofed(s *stage) {
	in, src := s.inbox(providers.GitHub(), s.effects.handle)
	s.guessed(in, src, "X-GitHub-Delivery")
	Drain(s, in)
	s.count("effects", s.effects.n(), 2)
}

func inboxHorizon(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.Advance(33 * 24 * time.Hour) // three days of attempts, and thirty of people's
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.count("effects within what Stripe and its people can resend", s.effects.n(), 1)
	if age := s.seen.lastEvent(receive.Duplicate).Age; age < 33*24*time.Hour || age > 34*24*time.Hour {
		s.Errorf("the repeat came %v after the event", age)
	}
	// An operator's replay passes the memory by, once, and the run knows that it is not the first.
	if err := in.Replay(s.Context(), s.seen.last(receive.Processed).Key); err != nil {
		s.Fatal(err)
	}
	Drain(s, in)
	if runs := s.effects.runs; len(runs) != 2 || runs[1] != 2 {
		s.Errorf("runs %v", runs)
	}
	s.Advance(34 * 24 * time.Hour)
	s.want(in, src, stageEvent, http.StatusOK)
	Drain(s, in)
	s.count("effects after it", s.effects.n(), 3)
}

func inboxBatch(s *stage) {
	in, src := s.inbox(stripe(), s.effects.handle)
	s.want(in, src, `{"id":"evt_1","amount":1}`, 200)
	s.want(in, src, `{"id":"evt_1","amount":9}`, 200)
	s.count("other bodies", s.seen.of(receive.OtherBody), 1)
	Drain(s, in)
	s.bodies([]string{`{"id":"evt_1","amount":1}`})

	ran, fail := map[string]int{}, "b"
	mail, hub := s.inbox(providers.SendGrid(), func(_ context.Context, d *receive.Delivery) error {
		ran[d.ID]++
		if d.Of != 3 {
			return receive.Permanent(fmt.Errorf("%d of %d", d.Index, d.Of))
		}
		if d.ID == fail {
			return errors.New("not now")
		}
		return nil
	}, func(c *receive.InboxConfig) { c.Source.Name = "mail" })
	s.fail("put", 1, errRefused, false)
	s.want(mail, hub, batch, http.StatusServiceUnavailable)
	s.count("runs of what was not stored", Drain(s, mail), 0)
	s.want(mail, hub, batch, http.StatusOK)
	Drain(s, mail)
	s.want(mail, hub, batch, http.StatusOK)
	fail = ""
	s.Advance(time.Hour)
	Drain(s, mail)
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; !maps.Equal(ran, want) {
		s.Errorf("runs %v, want %v", ran, want)
	}
}
