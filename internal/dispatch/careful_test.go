package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/quarantine"
	"github.com/waybill-dev/waybill/internal/route"
)

// apart stands for processes of their own, whose ends a test scripts.
type apart struct {
	clock *outbox.Clock
	mu    sync.Mutex
	calls map[outbox.EventID]int
	at    []outbox.EventID
	// end says how handling an event ends; nil: well.
	end func(id outbox.EventID, call int) error
}

func (a *apart) call(ctx context.Context, id outbox.EventID) error {
	a.mu.Lock()
	a.calls[id]++
	a.at = append(a.at, id)
	call, end := a.calls[id], a.end
	a.mu.Unlock()
	if end == nil {
		return ctx.Err()
	}
	return end(id, call)
}

func (a *apart) Attempt(ctx context.Context, e attempt.Endpoint, r attempt.Request) (attempt.Outcome, error) {
	if err := a.call(ctx, r.Event); err != nil {
		return attempt.Outcome{}, err
	}
	o := delivered()
	now := a.clock.Now()
	o.ID, o.At, o.Trigger, o.URL, o.RequestBytes = outbox.NewAttemptID(now), now, r.Trigger, e.URL, len(r.Payload)
	return o, nil
}

func (a *apart) Route(ctx context.Context, row outbox.OutboxRow, _ route.Subscribers) error {
	return a.call(ctx, row.Event)
}

// tried returns how often the event was handled apart.
func (a *apart) tried(id outbox.EventID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[id]
}

// runBeside runs a node that has processes of their own for suspects.
func (r *rig) runBeside(a *apart) {
	r.t.Helper()
	a.clock, a.calls = r.clock, map[outbox.EventID]int{}
	r.node = New(Config{
		Store:     r.store,
		Sender:    r.sender,
		Isolation: a,
		Clock:     r.clock,
		Log:       slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Exclusive: true,
		Retry:     outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 100 * time.Millisecond},
		Grace:     5 * time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.node.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// die makes a node that owned every shard and died while it was at the suspects.
func (r *rig) die(suspects ...outbox.Suspect) {
	r.t.Helper()
	ctx := r.t.Context()
	node := outbox.NewNodeID(r.clock.Now())
	if err := r.store.Join(ctx, node, r.clock.Now()); err != nil {
		r.t.Fatal(err)
	}
	beat, err := r.store.Beat(ctx, node, false)
	if err != nil {
		r.t.Fatal(err)
	}
	lease, _, err := r.store.Take(ctx, node, beat.Shards)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.MarkSuspects(ctx, lease, suspects, r.clock.Now()); err != nil {
		r.t.Fatal(err)
	}
}

// planned publishes events and has them planned, while the endpoint is paused.
func (r *rig) planned(tenant outbox.TenantRef, uid string, n int) (ids []outbox.EventID, deliveries []outbox.Suspect) {
	r.t.Helper()
	endpoint := r.endpoint(tenant, uid, func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	r.run()
	ids = r.publish(tenant, n, true)
	r.settled(tenant, map[outbox.DeliveryState]int{outbox.StatePending: n})
	r.halt()
	r.edit(tenant, uid, func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
	for _, id := range ids {
		deliveries = append(deliveries, outbox.Suspect{Shard: tenant.Shard, Delivery: outbox.NewDeliveryID(id, endpoint)})
	}
	return ids, deliveries
}

// suspects reads the journal of the tenant's shard.
func (r *rig) suspects(tenant outbox.TenantRef) []outbox.Suspect {
	r.t.Helper()
	found, err := r.store.Suspects(r.t.Context(), []outbox.Shard{tenant.Shard})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// reasons counts why the tenant's dead deliveries died.
func (r *rig) reasons(tenant outbox.TenantRef) map[outbox.DeadReason]int {
	r.t.Helper()
	list, _, err := r.store.Deliveries(r.t.Context(), outbox.DeliveryQuery{Tenant: tenant, States: []outbox.DeliveryState{outbox.StateDead}}, outbox.Page{Limit: 250})
	if err != nil {
		r.t.Fatal(err)
	}
	count := map[outbox.DeadReason]int{}
	for _, d := range list {
		count[d.Dead.Reason]++
	}
	return count
}

// saw reports whether the node itself sent the event.
func (r *rig) saw(id outbox.EventID) bool {
	return slices.ContainsFunc(r.sender.all(), func(s sent) bool { return s.Event == id })
}

func TestNode_writesDownWhatItHandlesOnlyAfterADeath(t *testing.T) {
	for name, died := range map[string]bool{"after a death": true, "after a clean stop": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			endpoint := r.endpoint(acme, "hook", nil)
			if died {
				r.die()
			}
			var mu sync.Mutex
			written := map[bool]int{}
			tries := 0
			r.sender.script(func(ctx context.Context, s sent) attempt.Outcome {
				found, err := r.store.Suspects(ctx, []outbox.Shard{acme.Shard})
				if err != nil {
					t.Error(err)
				}
				here := outbox.Suspect{Shard: acme.Shard, Delivery: outbox.NewDeliveryID(s.Event, endpoint)}
				mu.Lock()
				defer mu.Unlock()
				written[slices.Contains(found, here)]++
				if tries++; s.N == 1 && tries%2 == 0 {
					return failed(500)
				}
				return delivered()
			})
			r.run()
			r.publish(acme, 20, true)
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 20})
			mu.Lock()
			defer mu.Unlock()
			if written[died] != tries || written[!died] != 0 {
				t.Errorf("attempts by whether they were written down: %v", written)
			}
			if left := r.suspects(acme); len(left) > 0 {
				t.Errorf("%d suspects are left although all was survived", len(left))
			}
			r.balanced()
		})
	}
}

func TestNode_givesUpADeliveryThatKillsThreeProcesses(t *testing.T) {
	r := newRig(t)
	acme, other := r.tenant("acme", nil), r.tenant("other", nil)
	ids, deliveries := r.planned(acme, "hook", 3)
	r.endpoint(other, "hook", nil)
	r.die(deliveries[0], deliveries[1])
	a := &apart{end: func(id outbox.EventID, _ int) error {
		if id == ids[0] {
			return fmt.Errorf("%w: signal: killed", quarantine.ErrDied)
		}
		return nil
	}}
	r.runBeside(a)
	strangers := r.publish(other, 5, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 1, outbox.StateDelivered: 2})
	r.settled(other, map[outbox.DeliveryState]int{outbox.StateDelivered: 5})
	if got := r.reasons(acme); got[outbox.DeadPoison] != 1 {
		t.Errorf("dead: %v", got)
	}
	if a.tried(ids[0]) != 3 || a.tried(ids[1]) != 1 || a.tried(ids[2]) != 0 || a.tried(strangers[0]) != 0 {
		t.Errorf("handled apart: %v", a.calls)
	}
	if r.saw(ids[0]) || r.saw(ids[1]) || !r.saw(ids[2]) {
		t.Error("the node itself handled a suspect, or not the innocent one")
	}
	if left := r.suspects(acme); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	r.balanced()
}

func TestNode_strikesForNothingButADeath(t *testing.T) {
	for name, tc := range map[string]struct {
		end   error
		apart int // times it is handled apart
	}{
		"a process that hangs leads to a retry":          {quarantine.ErrHung, 1},
		"a panic is one of three, as ever":               {&quarantine.PanicError{Text: "a defect of ours"}, 1},
		"a process that cannot be made is made later on": {errors.New("no memory"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			acme := r.tenant("acme", nil)
			ids, deliveries := r.planned(acme, "hook", 1)
			r.die(deliveries...)
			struck := make(chan []outbox.Suspect, 1)
			a := &apart{end: func(_ outbox.EventID, call int) error {
				if call > 1 {
					return nil
				}
				return tc.end
			}}
			r.sender.script(func(context.Context, sent) attempt.Outcome {
				select {
				case struck <- r.suspects(acme):
				default:
				}
				return delivered()
			})
			r.runBeside(a)
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 1})
			if got := a.tried(ids[0]); got != tc.apart {
				t.Errorf("handled apart %d times, want %d", got, tc.apart)
			}
			select {
			case now := <-struck:
				if len(now) != 1 || now[0].Strikes != 0 {
					t.Errorf("at the next try: %+v, want no strike", now)
				}
			default:
			}
			if left := r.suspects(acme); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
		})
	}
}

func TestNode_strikesOutliveTheNode(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	ids, deliveries := r.planned(acme, "hook", 1)
	deliveries[0].Strikes = 2
	r.die(deliveries...)
	a := &apart{end: func(outbox.EventID, int) error { return quarantine.ErrDied }}
	r.runBeside(a)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 1})
	if a.tried(ids[0]) != 1 {
		t.Errorf("handled %d times, want once: it had two strikes", a.tried(ids[0]))
	}
}

// A suspect's limits are its endpoint's: paused means paused.
func TestNode_suspectsWaitLikeTheOthers(t *testing.T) {
	r := newRig(t)
	acme, other := r.tenant("acme", nil), r.tenant("other", nil)
	ids, deliveries := r.planned(acme, "hook", 1)
	r.edit(acme, "hook", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	more, others := r.planned(other, "hook", 1)
	r.die(append(deliveries, others...)...)
	a := &apart{}
	r.runBeside(a)
	r.settled(other, map[outbox.DeliveryState]int{outbox.StateDelivered: 1})
	if a.tried(ids[0]) != 0 || a.tried(more[0]) != 1 {
		t.Errorf("handled apart: %v", a.calls)
	}
	r.edit(acme, "hook", func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 1})
	if a.tried(ids[0]) != 1 {
		t.Errorf("handled apart: %v", a.calls)
	}
}

func TestNode_givesUpAnEventThatKillsWhoeverRoutesIt(t *testing.T) {
	for name, tc := range map[string]struct {
		deadly bool
		want   map[outbox.DeliveryState]int
		tries  int
	}{
		"deadly":   {true, map[outbox.DeliveryState]int{outbox.StateDead: 2, outbox.StateDelivered: 8}, 3},
		"innocent": {false, map[outbox.DeliveryState]int{outbox.StateDelivered: 10}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme, other := r.tenant("acme", nil), r.tenant("other", nil)
			endpoint := r.endpoint(acme, "hook", nil)
			r.endpoint(acme, "second", nil)
			r.endpoint(other, "hook", nil)
			ids := r.publish(acme, 5, false)
			rows, err := r.store.ReadOutbox(t.Context(), []outbox.Shard{acme.Shard}, []int64{0}, 10)
			if err != nil || len(rows) != 5 {
				t.Fatal(err, rows)
			}
			r.die(outbox.Suspect{Shard: acme.Shard, Pos: rows[1].Pos})
			a := &apart{end: func(outbox.EventID, int) error {
				if tc.deadly {
					return quarantine.ErrDied
				}
				return nil
			}}
			r.runBeside(a)
			r.publish(other, 5, true)
			r.settled(other, map[outbox.DeliveryState]int{outbox.StateDelivered: 5})
			r.settled(acme, tc.want)
			if got := r.reasons(acme)[outbox.DeadPoison]; got != tc.want[outbox.StateDead] {
				t.Errorf("%d dead of poison, want %d", got, tc.want[outbox.StateDead])
			}
			if a.tried(ids[1]) != tc.tries || len(a.calls) != 1 {
				t.Errorf("handled apart: %v", a.calls)
			}
			if r.saw(ids[1]) == tc.deadly {
				t.Errorf("sent: %v", r.saw(ids[1]))
			}
			for i, id := range ids {
				d, err := r.store.Delivery(t.Context(), acme, outbox.NewDeliveryID(id, endpoint))
				if err != nil || d.Sequence != int64(i+1) {
					t.Errorf("event %d has number %d: %v; what was accepted behind a suspect is numbered behind it", i+1, d.Sequence, err)
				}
			}
			if left := r.suspects(acme); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
			r.balanced()
		})
	}
}
