package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// revisions are those of all shards.
func (w *world) revisions() map[outbox.Shard]int64 {
	w.Helper()
	w.owned()
	return w.beat(w.lease.Node).Revisions
}

// moves checks that change moves the revision of the shard, and no other's.
func (w *world) moves(what string, shard outbox.Shard, change func()) {
	w.Helper()
	before := w.revisions()
	change()
	after := w.revisions()
	for _, s := range everyShard() {
		if moved := after[s] != before[s]; moved != (s == shard) {
			w.Errorf("%s: revision of shard %d from %d to %d", what, s, before[s], after[s])
		}
		if after[s] < before[s] {
			w.Errorf("%s: revision of shard %d went back", what, s)
		}
	}
	config, err := w.store.LoadConfig(w.ctx, []outbox.Shard{shard})
	w.must(err)
	if config.Revisions[shard] != after[shard] {
		w.Errorf("%s: the configuration is of revision %d, the heartbeat said %d", what, config.Revisions[shard], after[shard])
	}
	asked, err := w.store.Revisions(w.ctx, []outbox.Shard{shard})
	w.must(err)
	w.equal(what+": the revision asked for", asked, map[outbox.Shard]int64{shard: after[shard]})
}

func tenantRevisions(w *world) {
	shard := outbox.ShardOf("acme")
	w.moves("put", shard, func() { w.tenant("acme") })
	w.moves("edit", shard, func() {
		_, err := w.store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error { t.Weight = 3; return nil })
		w.must(err)
	})
	w.moves("delete", shard, func() {
		_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
		w.must(err)
	})
}

// tick waits until the wall clock, and with it the database's, shows a later millisecond.
func tick() time.Time {
	for start := time.Now(); ; {
		if now := time.Now(); now.Sub(start) > 2*time.Millisecond {
			return now
		}
	}
}

func tenantResumed(w *world) {
	state := func(s outbox.TenantState) outbox.Tenant {
		w.Helper()
		t, err := w.store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error { t.State = s; return nil })
		w.must(err)
		return t
	}
	first := w.tenant("acme")
	tick()
	w.equal("after an edit that changed no state", state(outbox.TenantActive).ResumedAt, first.ResumedAt)
	state(outbox.TenantPaused)
	resumed := tick()
	w.now = w.now.Add(-time.Hour) // the caller's clock does not matter
	got := state(outbox.TenantActive).ResumedAt
	if got.Before(resumed.Truncate(time.Millisecond)) || got.After(time.Now().Add(time.Second)) {
		w.Errorf("resumed at %v, the database's time was after %v", got, resumed)
	}
	read, err := w.store.Tenant(w.ctx, "acme")
	w.must(err)
	w.equal("as it is read", read.ResumedAt, got)
}
