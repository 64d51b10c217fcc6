package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var isolation = topic{"tenant isolation", []promise{
	{"nothing done as one tenant shows or changes a row of another", nothingCrosses},
}}

// possessions is everything a tenant can see of itself.
type possessions struct {
	Tenant     outbox.Tenant
	Endpoints  []outbox.Endpoint
	Events     []outbox.EventView
	Payloads   []string
	Deliveries []outbox.DeliveryView
	Attempts   []outbox.AttemptView
	Waiting    []outbox.OutboxRow
}

func (w *world) possessions(key string) possessions {
	w.Helper()
	tenant, err := w.store.Tenant(w.ctx, key)
	w.must(err)
	p := possessions{Tenant: tenant}
	p.Endpoints, err = w.store.Endpoints(w.ctx, outbox.EndpointQuery{Tenant: tenant.TenantRef}, outbox.Page{Limit: 250})
	w.must(err)
	p.Events = w.listEvents(outbox.EventQuery{Tenant: tenant.TenantRef}, 250, false)
	for _, e := range p.Events {
		payload, err := w.store.Payload(w.ctx, tenant.TenantRef, e.ID)
		w.must(err)
		p.Payloads = append(p.Payloads, string(payload))
	}
	p.Deliveries = w.listDeliveries(outbox.DeliveryQuery{Tenant: tenant.TenantRef}, 250, false)
	for _, d := range p.Deliveries {
		p.Attempts = append(p.Attempts, w.attempts(d.Delivery)...)
	}
	for _, row := range w.outbox() {
		if row.Tenant == tenant.ID {
			p.Waiting = append(p.Waiting, row)
		}
	}
	return p
}

// furnish gives a tenant rows of every sort.
func (w *world) furnish(tenant outbox.Tenant) {
	w.Helper()
	w.endpointWith(tenant, func(e *outbox.Endpoint) { e.UID = "main" })
	w.everySort(w.plannedMany(tenant, "a.b", 7))
	event := w.keyed(tenant, "k", `{"of":"`+tenant.Key+`"}`)
	event.Chosen = true
	w.publish(event)
}

func nothingCrosses(w *world) {
	victim, attacker := w.neighbours("acme")
	w.own()
	w.furnish(victim)
	w.furnish(attacker)
	before := w.possessions(victim.Key)
	w.property(5*time.Second, func(t *rapid.T) {
		w := w.within(t)
		target := before.Deliveries[rapid.IntRange(0, len(before.Deliveries)-1).Draw(t, "delivery")]
		ref := outbox.EndpointRef{ID: before.Endpoints[0].ID}
		if rapid.Bool().Draw(t, "by uid") {
			ref = outbox.EndpointRef{UID: "main"} // the attacker has one of that name
		}
		name := rapid.SampledFrom([]string{"list", "look", "endpoint", "publish", "replay", "cancel", "requests"}).Draw(t, "what")
		w.trespass(name, attacker, target, ref)
		if diff := cmp.Diff(before, w.possessions(victim.Key)); diff != "" {
			t.Fatalf("%s as another tenant changed this (- before, + after):\n%s", name, diff)
		}
	})
}

// trespass does one thing as the attacker with everything it may know of the victim.
func (w *world) trespass(what string, attacker outbox.Tenant, target outbox.DeliveryView, ref outbox.EndpointRef) {
	w.Helper()
	as := attacker.TenantRef
	hidden := func(how string, err error) {
		w.Helper()
		if !errors.Is(err, outbox.ErrNotFound) {
			w.Fatalf("%s of a foreign row: %v, want not found", how, err)
		}
	}
	switch what {
	case "list":
		for _, q := range []outbox.DeliveryQuery{{}, {Endpoint: target.Endpoint}, {Event: target.Event}, {EventTypes: []string{"a.b"}}, {States: []outbox.DeliveryState{target.State}}, {After: target.ID}} {
			q.Tenant = as
			for _, v := range w.listDeliveries(q, 3, true) {
				if v.Tenant != attacker.ID || v.TenantKey != attacker.Key {
					w.Fatalf("%+v lists a foreign delivery", q)
				}
			}
		}
		for _, q := range []outbox.EventQuery{{}, {State: outbox.EventUnrouted}, {State: outbox.EventFailed}, {EventTypes: []string{"a.b"}}, {After: target.Event}} {
			q.Tenant = as
			for _, v := range w.listEvents(q, 3, true) {
				if v.Tenant.ID != attacker.ID {
					w.Fatalf("%+v lists a foreign event", q)
				}
			}
		}
	case "look":
		_, err := w.store.Event(w.ctx, as, target.Event)
		hidden("event", err)
		_, err = w.store.Payload(w.ctx, as, target.Event)
		hidden("payload", err)
		_, err = w.store.Delivery(w.ctx, as, target.ID)
		hidden("delivery", err)
		if target.Last != nil {
			_, err = w.store.Attempt(w.ctx, as, target.Last.ID)
			hidden("try", err)
		}
		n, _, err := w.store.PendingOf(w.ctx, as, target.Endpoint, 100)
		if n != 0 || err != nil && !errors.Is(err, outbox.ErrNotFound) {
			w.Fatalf("%d foreign deliveries are counted: %v", n, err)
		}
	case "endpoint":
		edit := func(e *outbox.Endpoint) ([]outbox.Command, error) {
			if e.Tenant.ID != attacker.ID {
				return nil, fmt.Errorf("a foreign endpoint was handed to an edit")
			}
			e.Description += "x"
			return []outbox.Command{{Name: outbox.CommandCancelEndpoint}}, nil
		}
		if _, err := w.store.EditEndpoint(w.ctx, as, ref, w.now, edit); err != nil && !errors.Is(err, outbox.ErrNotFound) {
			w.Fatal(err)
		}
		if ref.UID == "" {
			_, err := w.store.DeleteEndpoint(w.ctx, as, ref, w.now, 10)
			hidden("deletion", err)
		}
	case "publish":
		e := w.keyed(attacker, "k", `{"of":"attacker"}`)
		e.ID, e.Chosen = target.Event, true
		if _, _, err := w.store.InsertEvents(w.ctx, []outbox.NewEvent{e}); err != nil {
			w.Fatal(err)
		}
	case "replay":
		_, err := w.store.RequestReplay(w.ctx, as, target.ID)
		hidden("replay", err)
		for _, v := range w.listDeliveries(outbox.DeliveryQuery{Tenant: as}, 250, false) {
			_, err := w.store.RequestReplay(w.ctx, as, v.ID)
			w.must(err)
		}
		w.replayOnly(attacker)
	case "cancel":
		w.executeCommands()
	case "requests":
		if _, answer, err := w.store.BeginIdempotent(w.ctx, as, "k", oneRequest, w.now); err != nil || len(answer) > 0 {
			w.Fatalf("answer %q, %v", answer, err)
		}
	}
}

// replayOnly executes the replays a tenant asked for.
func (w *world) replayOnly(tenant outbox.Tenant) {
	w.Helper()
	var rows []outbox.OutboxRow
	for _, row := range w.ofKind(outbox.OutboxReplay) {
		if row.Tenant == tenant.ID {
			rows = append(rows, row)
		}
	}
	_, err := w.store.Replay(w.ctx, w.lease, w.source(rows), w.now)
	w.must(err)
}
