package dispatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// once checks that each event reached each URL exactly once, with its own bytes, and that each
// URL's numbers are 1 to n.
func (r *rig) once(events []outbox.EventID, urls ...string) {
	r.t.Helper()
	got := map[string]map[outbox.EventID]int{}
	numbers := map[string][]int64{}
	for _, s := range r.sender.all() {
		if got[s.url] == nil {
			got[s.url] = map[outbox.EventID]int{}
		}
		got[s.url][s.Event]++
		numbers[s.url] = append(numbers[s.url], s.Sequence)
		stored, err := r.store.Payload(r.t.Context(), outbox.TenantRef{}, s.Event)
		if err != nil || sha256.Sum256(stored) != sha256.Sum256(s.Payload) {
			r.t.Fatalf("sent %q, stored %q (%v)", s.Payload, stored, err)
		}
	}
	for _, url := range urls {
		for _, e := range events {
			if n := got[url][e]; n != 1 {
				r.t.Errorf("%s got %s %d times", url, e, n)
			}
		}
		slices.Sort(numbers[url])
		for i, n := range numbers[url] {
			if n != int64(i+1) {
				r.t.Fatalf("%s: number %d stands in place %d", url, n, i+1)
			}
		}
	}
	if len(got) != len(urls) {
		r.t.Errorf("%d endpoints were sent to, want %d", len(got), len(urls))
	}
}

func TestNode_deliversToEveryEndpointThatMatches(t *testing.T) {
	for name, handed := range map[string]bool{"handed over": true, "found by the poll": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			r.endpoint(acme, "a", nil)
			r.endpoint(acme, "b", nil)
			r.endpoint(acme, "other", func(e *outbox.Endpoint) { e.EventTypes = []string{"other.*"} })
			r.endpoint(acme, "draft", func(e *outbox.Endpoint) { e.State = outbox.EndpointDraft })
			stranger := r.tenant("stranger", nil)
			r.endpoint(stranger, "c", nil)
			r.run()
			events := r.publish(acme, 100, handed)
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 200})
			r.once(events, "https://a.example/hook", "https://b.example/hook")
			r.balanced()
		})
	}
}

// What was configured before an event was accepted counts for it, without waiting for the next
// heartbeat to notice.
func TestNode_routesByTheConfigurationTheEventWasPublishedAfter(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.run()
	r.eventually("the node owns every shard", func() bool { return r.node.Status().Shards == outbox.Shards })
	var events []outbox.EventID
	for i := range 5 {
		r.endpoint(acme, string(rune('a'+i)), nil)
		events = append(events, r.publish(acme, 1, true)...)
	}
	// An event may also reach endpoints that were made before it was routed.
	r.eventually("every event reached what existed when it was published", func() bool {
		got := map[outbox.EventID]int{}
		for _, s := range r.sender.all() {
			got[s.Event]++
		}
		for i, e := range events {
			if got[e] < i+1 {
				return false
			}
		}
		return true
	})
	r.halt()
	r.balanced()
}

func TestNode_retriesThenDelivers(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "failing", nil)
	r.endpoint(acme, "healthy", nil)
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if s.N < 3 && s.url == "https://failing.example/hook" {
			return failed(503)
		}
		return delivered()
	})
	r.run()
	events := r.publish(acme, 5, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 10})
	tries := map[string]map[outbox.EventID][]int{"https://failing.example/hook": {}, "https://healthy.example/hook": {}}
	for _, s := range r.sender.all() {
		tries[s.url][s.Event] = append(tries[s.url][s.Event], s.N)
	}
	// What one server refused is sent to it again, and to nobody else.
	for url, want := range map[string][]int{"https://failing.example/hook": {1, 2, 3}, "https://healthy.example/hook": {1}} {
		for _, e := range events {
			if !slices.Equal(tries[url][e], want) {
				t.Errorf("%s: attempts %v of %s, want %v", url, tries[url][e], e, want)
			}
		}
	}
	r.balanced()
}

func TestNode_deadLetterThenReplay(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	id := r.endpoint(acme, "a", nil)
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		return attempt.Outcome{Attempt: outbox.Attempt{
			Outcome: outbox.OutcomePermanent, Kind: outbox.KindHTTPStatus, StatusCode: 404, Message: "Not there.", ResponseBody: []byte("nope\xff\x00"),
		}}
	})
	r.run()
	events := r.publish(acme, 3, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 3})
	dlv := outbox.NewDeliveryID(events[0], id)
	d, err := r.store.Delivery(t.Context(), acme, dlv)
	if err != nil || d.Dead == nil || d.Dead.Reason != outbox.DeadPermanent || d.Last == nil || d.Last.StatusCode != 404 {
		t.Fatalf("%+v, %v", d, err)
	}
	r.sender.script(nil)
	for round := 1; round <= 2; round++ {
		was, err := r.store.RequestReplay(t.Context(), acme, dlv)
		if want := []outbox.DeliveryState{outbox.StateDead, outbox.StateDelivered}[round-1]; err != nil || was != want {
			t.Fatalf("round %d: the delivery was %q, want %q (%v)", round, was, want, err)
		}
		r.node.Poke()
		r.eventually("the replay", func() bool { return len(r.sender.all()) == 3+round })
		r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 2, outbox.StateDelivered: 1})
		last := r.sender.all()[2+round]
		if last.N != 1+round || last.Trigger != outbox.TriggerReplay || last.Event != events[0] || last.Sequence != d.Sequence {
			t.Errorf("round %d: attempt %d, trigger %q, number %d; want %d, replay, %d", round, last.N, last.Trigger, last.Sequence, 1+round, d.Sequence)
		}
	}
	r.balanced()
}

func TestNode_replayOfPendingGoesNow(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	id := r.endpoint(acme, "a", func(e *outbox.Endpoint) {
		e.Retry = outbox.RetryPolicy{Initial: time.Hour, Max: time.Hour}
	})
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if s.N == 1 {
			return failed(500)
		}
		return delivered()
	})
	r.run()
	events := r.publish(acme, 1, true)
	r.eventually("the first attempt is recorded", func() bool {
		d, err := r.store.Delivery(t.Context(), acme, outbox.NewDeliveryID(events[0], id))
		return err == nil && d.Attempt == 1
	})
	if was, err := r.store.RequestReplay(t.Context(), acme, outbox.NewDeliveryID(events[0], id)); err != nil || was != outbox.StatePending {
		t.Fatal(was, err)
	}
	r.node.Poke()
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 1})
	r.balanced()
}

func TestNode_pausedWaitsAndDiscardCancels(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "keep", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	r.endpoint(acme, "drop", func(e *outbox.Endpoint) { e.State = outbox.EndpointDisabled })
	r.run()
	r.publish(acme, 10, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StatePending: 20})
	if n := len(r.sender.all()); n != 0 {
		t.Fatalf("%d attempts to endpoints that are paused or disabled", n)
	}
	r.edit(acme, "keep", func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
	r.edit(acme, "drop", func(e *outbox.Endpoint) {
		e.State, e.DiscardedAt = outbox.EndpointActive, r.clock.Now()
	})
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 10, outbox.StateCancelled: 10})
	events := r.publish(acme, 1, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 12, outbox.StateCancelled: 10})
	for _, s := range r.sender.all() {
		if s.url == "https://drop.example/hook" && s.Event != events[0] {
			t.Errorf("a discarded event was sent: %s", s.Event)
		}
	}
	r.balanced()
}

func TestNode_deletedEndpointIsSentNothingMore(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", nil)
	r.sender.script(func(context.Context, sent) attempt.Outcome { return failed(500) })
	r.run()
	r.publish(acme, 30, true)
	r.eventually("some attempts", func() bool { return len(r.sender.all()) >= 20 })
	if _, err := r.store.DeleteEndpoint(t.Context(), acme, outbox.EndpointRef{UID: "a"}, r.clock.Now(), 1000); err != nil {
		t.Fatal(err)
	}
	r.node.Poke()
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateCancelled: 30})
	before := len(r.sender.all())
	r.halt()
	r.run() // and none after a restart either
	r.eventually("the node owns every shard", func() bool { return r.node.Status().Shards == outbox.Shards })
	r.halt()
	if after := len(r.sender.all()); after != before {
		t.Errorf("%d attempts after everything was cancelled", after-before)
	}
	r.balanced()
}

func TestNode_keepsTheTenantsCap(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", func(t *outbox.Tenant) { t.MaxInFlight = 3 })
	r.endpoint(acme, "a", nil)
	r.endpoint(acme, "one", func(e *outbox.Endpoint) { e.MaxInFlight = 1 })
	release := make(chan struct{})
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		<-release
		return delivered()
	})
	r.run()
	r.publish(acme, 20, true)
	inFlight := func() int { return r.node.Status().InFlight }
	r.eventually("the cap is used", func() bool { return inFlight() == 3 })
	for range 40 {
		release <- struct{}{}
		if n := inFlight(); n > 3 {
			t.Fatalf("%d attempts at once, the cap is 3", n)
		}
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 40})
	if most := r.sender.most["https://one.example/hook"]; most != 1 {
		t.Errorf("%d attempts at once to an endpoint that allows 1", most)
	}
}

func TestNode_panicsEndAsPoison(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", nil)
	r.endpoint(acme, "b", nil)
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if s.url == "https://a.example/hook" {
			panic("a defect of ours")
		}
		return delivered()
	})
	r.run()
	r.publish(acme, 2, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 2, outbox.StateDelivered: 2})
	rows, _, err := r.store.Deliveries(t.Context(), outbox.DeliveryQuery{Tenant: acme, States: []outbox.DeliveryState{outbox.StateDead}}, outbox.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range rows {
		if d.Dead.Reason != outbox.DeadPoison || d.Attempt != 3 {
			t.Errorf("reason %q after %d attempts, want poison after 3", d.Dead.Reason, d.Attempt)
		}
	}
}

// A commit whose answer is lost is applied or not; either way each event is planned once.
func TestNode_routingCommitsWithUnknownOutcome(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			r.endpoint(acme, "a", nil)
			r.endpoint(acme, "b", nil)
			calls := 0
			r.store.set(func(f *faulty) {
				f.route = func(apply func() (outbox.Routed, error)) (outbox.Routed, error) {
					calls++
					if calls%2 == 0 {
						return apply()
					}
					if applied {
						if routed, err := apply(); err != nil || len(routed.Gone)+len(routed.Stale) > 0 {
							return routed, err
						}
					}
					return outbox.Routed{}, errCut
				}
			})
			r.run()
			var events []outbox.EventID
			for range 5 {
				events = append(events, r.publish(acme, 20, true)...)
			}
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 200})
			r.once(events, "https://a.example/hook", "https://b.example/hook")
			r.balanced()
		})
	}
}

// The receiver has it, and the database is away when that is to be written down. The result
// is kept until it is written; nothing is sent again, nothing becomes a dead letter.
func TestNode_resultsOutliveTheDatabasesAbsence(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", nil)
	away := 5
	r.store.set(func(f *faulty) {
		f.finish = func(results []outbox.Result, apply func() (outbox.Finished, error)) (outbox.Finished, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if away--; away >= 0 {
				return outbox.Finished{}, &outbox.WriteError{Fault: outbox.FaultRetry, Err: errors.New("away")}
			}
			return apply()
		}
	})
	r.run()
	events := r.publish(acme, 10, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 10})
	r.once(events, "https://a.example/hook")
	r.balanced()
}

// One result that the database refuses must not keep its batch, or its own delivery, from ending.
func TestNode_resultThatCannotBeStoredIsStoredWithoutTheAnswer(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", nil)
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		o := delivered()
		o.ResponseBody = []byte("fine")
		if s.Sequence == 4 {
			o.ResponseBody = []byte("poison")
		}
		return o
	})
	r.store.set(func(f *faulty) {
		f.finish = func(results []outbox.Result, apply func() (outbox.Finished, error)) (outbox.Finished, error) {
			for _, x := range results {
				if x.Attempt != nil && string(x.Attempt.ResponseBody) == "poison" {
					return outbox.Finished{}, &outbox.WriteError{Fault: outbox.FaultRefused, Err: errors.New("invalid byte sequence")}
				}
			}
			return apply()
		}
	})
	r.run()
	events := r.publish(acme, 10, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 10})
	r.once(events, "https://a.example/hook")
	r.balanced()
}

// A stop lets attempts that are under way finish, counts nothing for what was not sent, and the
// next start sends the rest.
func TestNode_stopFinishesWhatIsInFlight(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", func(t *outbox.Tenant) { t.MaxInFlight = 5 })
	r.endpoint(acme, "a", nil)
	release := make(chan struct{})
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		<-release
		return delivered()
	})
	r.run()
	events := r.publish(acme, 55, true)
	r.eventually("five in flight", func() bool { return r.node.Status().InFlight == 5 })
	stopped := make(chan error)
	go func() { stopped <- r.stop() }()
	r.eventually("draining", func() bool { return r.node.Status().Draining })
	close(release)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	r.stop = nil
	if got := r.states(acme); got[outbox.StateDelivered] != 5 || got[outbox.StatePending] != 50 {
		t.Fatalf("after the stop: %v, want 5 delivered and 50 pending", got)
	}
	r.sender.script(nil)
	r.run()
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 55})
	r.once(events, "https://a.example/hook")
	r.balanced()
}

func TestNode_fansOutInStepsAndGoesOnWhereItStood(t *testing.T) {
	if testing.Short() {
		t.Skip("4,000 endpoints take a while to make")
	}
	r := newRig(t)
	acme := r.tenant("acme", func(t *outbox.Tenant) { t.MaxInFlight = 500 })
	const n = 4_000
	for i := range n {
		r.endpoint(acme, "e"+string(rune('a'+i%26))+time.Duration(i).String(), nil)
	}
	calls := 0
	r.store.set(func(f *faulty) {
		f.route = func(apply func() (outbox.Routed, error)) (outbox.Routed, error) {
			if calls++; calls == 7 {
				go r.stop() // in the middle of the fan-out
			}
			return apply()
		}
	})
	r.run()
	events := r.publish(acme, 1, true)
	r.eventually("the node stopped", func() bool { return r.node.Status().Draining })
	r.halt()
	r.store.set(func(f *faulty) { f.route = nil })
	r.run()
	r.eventually("every endpoint got it", func() bool { return len(r.sender.all()) >= n })
	r.halt()
	seen := map[string]int{}
	for _, s := range r.sender.all() {
		seen[s.url]++
		if s.Event != events[0] || s.Sequence != 1 {
			t.Fatalf("%+v", s.Request)
		}
	}
	for url, count := range seen {
		if count != 1 {
			t.Errorf("%s got it %d times", url, count)
		}
	}
	if len(seen) != n {
		t.Errorf("%d endpoints got it, want %d", len(seen), n)
	}
	r.balanced()
}
