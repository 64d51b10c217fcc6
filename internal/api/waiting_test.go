package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestWhyWaiting_namesTheReasonThatHolds(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	second := time.Second
	type told struct {
		Reason     waitReason
		Ahead      int // -1: not told
		Capped     bool
		Until, ETA time.Duration // from now; 0: null
		Behind     behindView
	}
	before := outbox.DeliveryID{15: 7}
	parked := func(d *outbox.DeliveryView) { d.NextAt, d.TurnAt = outbox.Parked, outbox.Parked }
	open := outbox.EndpointHealth{Breaker: outbox.BreakerOpen, ConsecutiveFailures: 20, NextProbeAt: in(30 * second), FailingSince: in(-time.Minute)}
	probing := outbox.EndpointHealth{Breaker: outbox.BreakerProbing, ConsecutiveFailures: 21, NextProbeAt: in(-second)}
	for name, row := range map[string]struct {
		change func(d *outbox.DeliveryView)
		health outbox.EndpointHealth
		stale  bool // written down by another node
		paused bool
		ahead  int
		first  outbox.Predecessor
		want   told
	}{
		"due and alone": {want: told{Reason: waitBacklog}},
		"behind others, nothing known": {
			ahead: 5, want: told{Reason: waitBacklog, Ahead: 5}},
		// Ten at once that take 0.5 s each are 20 a second: the sixth is through in 0.3 s.
		"behind others, durations known": {
			health: outbox.EndpointHealth{Average: 500 * time.Millisecond, InFlight: 4, TenantInFlight: 4},
			ahead:  5, want: told{Reason: waitBacklog, Ahead: 5, ETA: 300 * time.Millisecond}},
		"behind more than are counted": {
			health: outbox.EndpointHealth{Average: 500 * time.Millisecond},
			ahead:  1001, want: told{Reason: waitBacklog, Ahead: 1000, Capped: true}},
		"a replay": {
			change: func(d *outbox.DeliveryView) { d.Lane, d.Round = outbox.LaneReplay, 1 },
			health: outbox.EndpointHealth{Average: second}, // two of ten slots: two a second
			ahead:  5, want: told{Reason: waitBacklog, Ahead: 5, ETA: 3 * second}},

		"to be retried": {
			change: func(d *outbox.DeliveryView) { d.NextAt, d.Attempt = in(time.Minute), 1 },
			want:   told{Reason: waitRetry, Ahead: -1, Until: time.Minute, ETA: time.Minute}},
		"its turn has not come": {
			change: parked, want: told{Reason: waitOrder, Ahead: -1}},
		"another of its key is under way": {
			change: parked, first: outbox.Predecessor{ID: before, NextAt: in(-second)},
			want: told{Reason: waitOrder, Ahead: -1, Behind: behindView{before.String(), "pending"}}},
		"another of its key is tried again later": {
			change: parked, first: outbox.Predecessor{ID: before, NextAt: in(time.Minute)},
			want: told{Reason: waitOrder, Ahead: -1, Until: time.Minute, ETA: time.Minute, Behind: behindView{before.String(), "pending"}}},
		"a dead one holds its key": {
			change: parked, first: outbox.Predecessor{ID: before, Dead: true},
			want: told{Reason: waitOrder, Ahead: -1, Behind: behindView{before.String(), "dead"}}},

		// Three of its ten are this endpoint's, so three a second are its own.
		"the tenant's slots are taken": {
			health: outbox.EndpointHealth{InFlight: 3, TenantInFlight: 10, Average: second},
			ahead:  20, want: told{Reason: waitTenant, Ahead: 20, ETA: 7 * second}},
		"the tenant's slots are taken, all by others": {
			health: outbox.EndpointHealth{TenantInFlight: 10, Average: second},
			ahead:  2, want: told{Reason: waitTenant, Ahead: 2, ETA: 3 * second}},
		"the tenant's slots are taken, by this endpoint": {
			health: outbox.EndpointHealth{InFlight: 10, TenantInFlight: 10},
			want:   told{Reason: waitTenant}},
		"the endpoint's own slots are taken": {
			change: func(d *outbox.DeliveryView) { d.Limits.EndpointInFlight = 2 },
			health: outbox.EndpointHealth{InFlight: 2, TenantInFlight: 5, Average: 2 * second},
			ahead:  9, want: told{Reason: waitEndpoint, Ahead: 9, ETA: 10 * second}},
		"a slow server is given fewer": {
			health: outbox.EndpointHealth{Limit: 4, InFlight: 4, TenantInFlight: 5, Average: 2 * second},
			ahead:  7, want: told{Reason: waitEndpoint, Ahead: 7, ETA: 4 * second}},
		"slots that were taken when another node last wrote, all being well": {
			health: outbox.EndpointHealth{Breaker: outbox.BreakerClosed, InFlight: 10, TenantInFlight: 10}, stale: true,
			want: told{Reason: waitBacklog}},
		"slots that are taken as a failing endpoint's owner wrote": {
			health: outbox.EndpointHealth{Breaker: outbox.BreakerClosed, InFlight: 10, TenantInFlight: 12, FailingSince: in(-second)}, stale: true,
			change: func(d *outbox.DeliveryView) { d.Limits.TenantInFlight = 20; d.Limits.EndpointInFlight = 10 },
			want:   told{Reason: waitEndpoint}},

		"a limited server": {
			health: outbox.EndpointHealth{Rate: 2, InFlight: 1, TenantInFlight: 1, Average: 10 * time.Millisecond},
			ahead:  9, want: told{Reason: waitRate, Ahead: 9, ETA: 5 * second}},
		"the server asked for a pause": {
			health: outbox.EndpointHealth{PausedUntil: in(20 * second), Rate: 2},
			ahead:  9, want: told{Reason: waitRate, Ahead: 9, Until: 20 * second, ETA: 25 * second}},
		"a fixed limit": {
			change: func(d *outbox.DeliveryView) { d.Limits.Rate = &outbox.RateLimit{Count: 30, Per: time.Minute} },
			health: outbox.EndpointHealth{Rate: 0, Average: 10 * time.Millisecond},
			ahead:  9, want: told{Reason: waitRate, Ahead: 9, ETA: 20 * second}},
		"of two limits the lower": {
			change: func(d *outbox.DeliveryView) { d.Limits.Rate = &outbox.RateLimit{Count: 30, Per: time.Minute} },
			health: outbox.EndpointHealth{Rate: 4},
			ahead:  9, want: told{Reason: waitRate, Ahead: 9, ETA: 20 * second}},
		"an estimate beyond any use": {
			change: func(d *outbox.DeliveryView) { d.Limits.Rate = &outbox.RateLimit{Count: 1, Per: 24 * time.Hour} },
			ahead:  30, want: told{Reason: waitRate, Ahead: 30}},

		"the breaker is open": {
			health: open, ahead: 5, want: told{Reason: waitBreaker, Ahead: -1, Until: 30 * second}},
		"the breaker is open, as another node wrote": {
			health: open, stale: true, want: told{Reason: waitBreaker, Ahead: -1, Until: 30 * second}},
		"the breaker is open, and its retry comes before the probe": {
			change: func(d *outbox.DeliveryView) { d.NextAt = in(10 * second) },
			health: open, want: told{Reason: waitBreaker, Ahead: -1, Until: 30 * second}},
		"the breaker is open, and its retry comes after the probe": {
			change: func(d *outbox.DeliveryView) { d.NextAt = in(time.Hour) },
			health: open, want: told{Reason: waitRetry, Ahead: -1, Until: time.Hour, ETA: time.Hour}},
		"the breaker is open, and its turn has not come": {
			change: parked,
			health: open, want: told{Reason: waitBreaker, Ahead: -1, Until: 30 * second}},
		"a probe is out": {
			health: probing, want: told{Reason: waitBreaker, Ahead: -1}},
		"a probe is out, and it is to be retried": {
			change: func(d *outbox.DeliveryView) { d.NextAt = in(time.Minute) },
			health: probing, want: told{Reason: waitRetry, Ahead: -1, Until: time.Minute, ETA: time.Minute}},

		"the endpoint is paused": {
			change: func(d *outbox.DeliveryView) { d.EndpointState, d.NextAt = outbox.EndpointPaused, in(time.Minute) },
			health: open, want: told{Reason: waitPaused, Ahead: -1}},
		"the endpoint is disabled": {
			change: func(d *outbox.DeliveryView) { d.EndpointState = outbox.EndpointDisabled },
			health: open, want: told{Reason: waitDisabled, Ahead: -1}},
		"the endpoint is a draft": {
			change: func(d *outbox.DeliveryView) { d.EndpointState = outbox.EndpointDraft },
			want:   told{Reason: waitPaused, Ahead: -1}},
		"the tenant is paused": {
			change: func(d *outbox.DeliveryView) {
				d.TenantState, d.EndpointState = outbox.TenantPaused, outbox.EndpointDisabled
			},
			want: told{Reason: waitPaused, Ahead: -1}},
		"the endpoint is deleted": {
			change: func(d *outbox.DeliveryView) { d.EndpointState = "" },
			want:   told{Reason: waitBacklog, Ahead: -1}},
		"sending is stopped": {
			change: func(d *outbox.DeliveryView) { d.TenantState = outbox.TenantPaused },
			health: open, paused: true, want: told{Reason: waitDispatch, Ahead: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox.DeliveryView{
				Delivery:      outbox.Delivery{NextAt: in(-second)},
				State:         outbox.StatePending,
				EndpointState: outbox.EndpointActive,
				TenantState:   outbox.TenantActive,
				Limits:        outbox.DeliveryLimits{TenantInFlight: 10},
			}
			if row.change != nil {
				row.change(&d)
			}
			c := circumstances{
				dispatch: outbox.DispatchState{Paused: row.paused, Reason: "secret plans"},
				endpoint: standing{EndpointHealth: row.health, live: !row.stale},
				ahead:    row.ahead,
				most:     1000,
				first:    row.first,
			}
			view := whyWaiting(&d, c, now)
			got := told{Reason: view.Reason, Ahead: -1, Capped: view.Capped}
			if view.Ahead != nil {
				got.Ahead = *view.Ahead
			}
			if view.Behind != nil {
				got.Behind = *view.Behind
			}
			for from, to := range map[*stamp]*time.Duration{view.Until: &got.Until, view.ETA: &got.ETA} {
				if from != nil {
					*to = time.Time(*from).Sub(now)
				}
			}
			if view.Until != nil && view.Until == view.ETA { // one stamp may stand for both
				got.Until = time.Time(*view.Until).Sub(now)
				got.ETA = got.Until
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if len(view.Detail) < 10 || view.Detail[len(view.Detail)-1] != '.' {
				t.Errorf("detail %q", view.Detail)
			}
		})
	}
	for _, state := range []outbox.DeliveryState{outbox.StateDelivered, outbox.StateDead, outbox.StateCancelled} {
		if view := whyWaiting(&outbox.DeliveryView{State: state}, circumstances{dispatch: outbox.DispatchState{Paused: true}}, now); view != nil {
			t.Errorf("%s waits: %+v", state, view)
		}
	}
}

// What the owner knows, wherever it is, reaches the person who asks.
func TestDelivery_saysWhatItWaitsFor(t *testing.T) { onBoth(t, delivery_saysWhatItWaitsFor) }

func delivery_saysWhatItWaitsFor(t *testing.T, f *fixture) {
	f.tenant("acme")
	ep := f.endpoint("acme", `"rate_limit":{"count":6,"per_seconds":60}`)
	first, second := f.delivered("a.b"), f.delivered("a.b")
	reasons := func() []any {
		t.Helper()
		var got []any
		for _, d := range []outbox.Delivery{first, second} {
			one := f.call("GET", acmeDeliveries+"/"+d.ID.String(), nil).want(http.StatusOK)
			got = append(got, one.get("waiting", "reason"))
			for _, list := range []string{acmeDeliveries, "/v1/deliveries?tenant=acme", "/v1/deliveries", acmeEvents + "/" + d.Event.String() + "/deliveries"} {
				rows := f.call("GET", list, nil).want(http.StatusOK).get("data").([]any)
				for _, row := range rows {
					if row := row.(map[string]any); row["id"] == d.ID.String() && object(row, "waiting")["reason"] != got[len(got)-1] {
						t.Errorf("%s says %v, the delivery itself %v", list, row["waiting"], one.get("waiting"))
					}
				}
			}
		}
		return got
	}
	want := func(what string, want ...any) {
		t.Helper()
		if diff := cmp.Diff(want, reasons()); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	want("behind one another", "backlog", "rate_limit")
	waiting := f.call("GET", acmeDeliveries+"/"+second.ID.String(), nil).get("waiting").(map[string]any)
	eta, err := time.Parse(time.RFC3339, waiting["eta"].(string))
	must(t, err)
	if left := time.Until(eta); waiting["ahead"] != 1.0 || left < 18*time.Second || left > 20*time.Second {
		t.Errorf("waiting %v, want it tried in 20 s", waiting)
	}

	id, err := outbox.ParseEndpointID(ep)
	must(t, err)
	now := f.clock.Now()
	must(t, f.store.WriteHealth(t.Context(), f.owner, []outbox.EndpointHealth{{
		Shard: f.ref("acme").Shard, Tenant: f.ref("acme").ID, Endpoint: id,
		Breaker: outbox.BreakerOpen, NextProbeAt: now.Add(time.Minute), OpenedAt: now, ConsecutiveFailures: 20,
	}}, now))
	want("with an open breaker", "breaker", "breaker")

	f.call("PUT", "/v1/dispatch", `{"state":"paused","reason":"moving house"}`).want(http.StatusOK)
	want("while sending is stopped", "dispatch_paused", "dispatch_paused")
}
