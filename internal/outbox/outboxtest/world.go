package outboxtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// world is a store with the people around it: publishers, customers and the node that owns the
// shards. Its methods do what they do, and fail the test if the store does not let them.
type world struct {
	rapid.TB
	ctx   context.Context
	store outbox.Store
	outer *testing.T
	// now is what everybody takes for database time. Tests move it.
	now   time.Time
	lease outbox.Lease
	// scope is the shards the owner looks at, all of them unless a test says otherwise.
	scope []outbox.Shard
}

func newWorld(t *testing.T, store outbox.Store) *world {
	return &world{
		TB:    t,
		ctx:   t.Context(),
		store: store,
		outer: t,
		now:   time.Now().UTC().Truncate(time.Microsecond),
		scope: everyShard(),
	}
}

// within returns the same world for one run of a property.
func (w *world) within(t *rapid.T) *world {
	inner := *w
	inner.TB = t
	return &inner
}

// property checks as many random runs as rapid is asked for and the time allows. They differ each
// time, so a slow machine only takes longer to have tried as much.
func (w *world) property(most time.Duration, run func(*rapid.T)) {
	w.Helper()
	end := time.Now().Add(most)
	rapid.Check(w.outer, func(t *rapid.T) {
		if time.Now().Before(end) {
			run(t)
		}
	})
}

// must fails the test on an error of something that is not what the test is about.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// equal compares what the store gave with what it must be. Times are equal if they are the same
// instant; an empty map or slice equals none.
func (w *world) equal(what string, got, want any) {
	w.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Fatalf("%s (- want, + got):\n%s", what, diff)
	}
}

func (w *world) tenant(key string) outbox.Tenant {
	w.Helper()
	tenant, _, err := w.store.PutTenant(w.ctx, key, w.now, func(*outbox.Tenant, bool) error { return nil })
	w.must(err)
	return tenant
}

// neighbours makes two tenants whose rows lie in the same shard, where a forgotten tenant filter
// shows.
func (w *world) neighbours(key string) (outbox.Tenant, outbox.Tenant) {
	w.Helper()
	for i := range 10_000 {
		other := fmt.Sprintf("%s-%d", key, i)
		if outbox.ShardOf(other) == outbox.ShardOf(key) {
			return w.tenant(key), w.tenant(other)
		}
	}
	w.Fatal("no second key in this shard")
	panic("unreachable")
}

// strangers makes two tenants in different shards.
func (w *world) strangers(key string) (outbox.Tenant, outbox.Tenant) {
	w.Helper()
	for i := range 10_000 {
		other := fmt.Sprintf("%s-%d", key, i)
		if outbox.ShardOf(other) != outbox.ShardOf(key) {
			return w.tenant(key), w.tenant(other)
		}
	}
	w.Fatal("no key in another shard")
	panic("unreachable")
}

// endpoint makes an active endpoint that wants the given event types.
func (w *world) endpoint(tenant outbox.Tenant, types ...string) outbox.Endpoint {
	w.Helper()
	return w.endpointWith(tenant, func(e *outbox.Endpoint) { e.EventTypes = types })
}

// endpointWith makes an endpoint, active and for every event unless change says otherwise.
func (w *world) endpointWith(tenant outbox.Tenant, change func(e *outbox.Endpoint)) outbox.Endpoint {
	w.Helper()
	e, _, err := w.store.PutEndpoint(w.ctx, tenant.TenantRef, outbox.EndpointRef{}, w.now, func(e *outbox.Endpoint, _ bool) error {
		e.URL = "https://hooks.example.com/in"
		e.EventTypes = []string{"*"}
		e.State = outbox.EndpointActive
		e.Timeout = outbox.DefaultTimeout
		e.Secrets = []outbox.Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", CreatedAt: w.now}}
		change(e)
		return nil
	})
	w.must(err)
	return e
}

// editEndpoint changes an endpoint.
func (w *world) editEndpoint(e outbox.Endpoint, change func(e *outbox.Endpoint)) outbox.Endpoint {
	w.Helper()
	e, err := w.store.EditEndpoint(w.ctx, e.Tenant, outbox.EndpointRef{ID: e.ID}, w.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		change(e)
		return nil, nil
	})
	w.must(err)
	return e
}

// event is an event to publish, with an id of its own.
func (w *world) event(tenant outbox.Tenant, eventType, payload string) outbox.NewEvent {
	return outbox.NewEvent{Event: outbox.Event{
		ID:        outbox.NewEventID(w.now),
		Tenant:    tenant.TenantRef,
		Type:      eventType,
		Payload:   []byte(payload),
		SHA256:    sha256.Sum256([]byte(payload)),
		CreatedAt: w.now,
	}}
}

// publish stores events that meet nothing stored.
func (w *world) publish(batch ...outbox.NewEvent) []outbox.Accepted {
	w.Helper()
	accepted, conflicts, err := w.store.InsertEvents(w.ctx, batch)
	w.must(err)
	if len(conflicts) > 0 {
		w.Fatalf("conflicts: %v", conflicts)
	}
	if len(accepted) != len(batch) {
		w.Fatalf("%d answers for %d events", len(accepted), len(batch))
	}
	return accepted
}

// publishOne stores one new event.
func (w *world) publishOne(tenant outbox.Tenant, eventType, payload string) outbox.NewEvent {
	w.Helper()
	e := w.event(tenant, eventType, payload)
	w.publish(e)
	return e
}

// everyShard is all of them.
func everyShard() []outbox.Shard {
	shards := make([]outbox.Shard, outbox.Shards)
	for i := range shards {
		shards[i] = outbox.Shard(i)
	}
	return shards
}

// outbox reads everything that waits, in order of acceptance.
func (w *world) outbox() []outbox.OutboxRow {
	w.Helper()
	rows, err := w.store.ReadOutbox(w.ctx, w.scope, make([]int64, len(w.scope)), 100_000)
	w.must(err)
	slices.SortFunc(rows, func(a, b outbox.OutboxRow) int { return int(a.Pos - b.Pos) })
	return rows
}

// verify fails the test unless the books balance, and returns the totals.
func (w *world) verify() outbox.Report {
	w.Helper()
	var report outbox.Report
	for _, deep := range []bool{false, true} {
		var err error
		report, err = w.store.Verify(w.ctx, deep)
		w.must(err)
		for _, check := range report.Checks {
			for _, broken := range check.Broken {
				w.Errorf("the books do not balance (deep %v): %s: %s: %d and %d", deep, check.Name, broken.Where, broken.Left, broken.Right)
			}
		}
	}
	if w.Failed() {
		w.FailNow()
	}
	return report
}

// backdoor returns the store's back door, or skips the test.
func (w *world) backdoor() Backdoor {
	w.Helper()
	door, ok := w.store.(Backdoor)
	if !ok {
		w.Skip("this store has no back door")
	}
	return door
}
