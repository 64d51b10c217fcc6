package postgres_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
)

// backlog is an application with one endpoint and a node that owns every shard, to be measured
// while much of somebody else's lies in the tables.
type backlog struct {
	*application
	tenant   outbox.Tenant
	endpoint outbox.Endpoint
	now      time.Time
}

func newBacklog(t *testing.T, ordering outbox.Ordering) backlog {
	t.Helper()
	if testing.Short() {
		t.Skip("many rows")
	}
	b := backlog{application: newApplication(t), now: time.Now().UTC().Truncate(time.Microsecond)}
	b.tenant = b.application.tenant()
	var err error
	b.endpoint, _, err = b.store.PutEndpoint(t.Context(), b.tenant.TenantRef, outbox.EndpointRef{}, b.now, func(e *outbox.Endpoint, _ bool) error {
		e.URL, e.EventTypes, e.State, e.Timeout = "https://hooks.example.com/in", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout
		e.Ordering = ordering
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lease takes every shard.
func (b *backlog) lease() outbox.Lease {
	b.t.Helper()
	node := outbox.NewNodeID(b.now)
	beat, err := b.store.Beat(b.t.Context(), node, false)
	if err != nil {
		b.t.Fatal(err)
	}
	lease, _, err := b.store.Take(b.t.Context(), node, beat.Shards)
	if err != nil {
		b.t.Fatal(err)
	}
	lease.Revisions = beat.Revisions
	return lease
}

// close closes a store and waits until its connections are gone: a server process hands in what
// it counted when it ends.
func (a *application) close(store *postgres.Store) {
	a.t.Helper()
	store.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if a.text(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'waybill'`) == "0" {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatal("the store's connections do not end")
		}
	}
}
