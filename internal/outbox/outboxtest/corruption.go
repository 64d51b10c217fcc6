package outboxtest

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var corruption = topic{"finding corruption", []promise{
	{"every row that vanishes unbalances the books", vanishedRows},
	{"a number that was changed unbalances the books", changedLedger},
	{"a missing number is found in depth", missingNumber},
	{"only the damaged shard is named", damagedShard},
}}

// broken runs the proof and returns where it fails.
func (w *world) broken(deep bool) []string {
	w.Helper()
	report, err := w.store.Verify(w.ctx, deep)
	w.must(err)
	var where []string
	for _, check := range report.Checks {
		for _, b := range check.Broken {
			where = append(where, b.Where)
			if b.Left == b.Right {
				w.Errorf("%s: %s: %d and %d are said to differ", check.Name, b.Where, b.Left, b.Right)
			}
		}
	}
	if report.Balanced() != (len(where) == 0) {
		w.Error("balanced and broken at once")
	}
	return where
}

// damaged makes a shard with a row in every table of the books.
func (w *world) damaged() (door Backdoor, tenant outbox.Tenant, e outbox.Endpoint) {
	w.Helper()
	door = w.backdoor()
	tenant = w.tenant("acme")
	e = w.endpoint(tenant, "*")
	w.everySort(w.plannedMany(tenant, "a.b", 7))
	w.publishOne(tenant, "a.b", `{}`)
	w.verify()
	return door, tenant, e
}

func vanishedRows(w *world) {
	// Each in a world of its own would cost a database each: the tenants are in several shards.
	door := w.backdoor()
	for i, table := range []string{"delivery", "dead_letter", "outbox", "event", "ledger"} {
		tenant := w.tenant(fmt.Sprintf("tenant-%d", i))
		w.endpoint(tenant, "*")
		w.everySort(w.plannedMany(tenant, "a.b", 7))
		w.publishOne(tenant, "a.b", `{}`)
		before := len(w.broken(false))
		w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {%s} WHERE shard = %d`, table, tenant.Shard)))
		where := w.broken(false)
		if len(where) <= before {
			w.Errorf("nobody misses the rows of %s", table)
		}
		if !strings.Contains(strings.Join(where, "\n"), fmt.Sprintf("shard %d", tenant.Shard)) {
			w.Errorf("%s: shard %d is not named: %q", table, tenant.Shard, where)
		}
		// What is left of it would be routed by the next tenant's turn.
		w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {outbox} WHERE shard = %d`, tenant.Shard)))
	}
}

func changedLedger(w *world) {
	for _, column := range []string{"planned", "delivered", "dead", "cancelled"} {
		door := w.backdoor()
		tenant := w.tenant("tenant-" + column)
		w.endpoint(tenant, "*")
		w.everySort(w.plannedMany(tenant, "a.b", 7))
		before := len(w.broken(false))
		w.must(door.Exec(w.ctx, fmt.Sprintf(`UPDATE {ledger} SET %s = %s + 1 WHERE shard = %d`, column, column, tenant.Shard)))
		if len(w.broken(false)) <= before {
			w.Errorf("nobody notices that more is said to be %s", column)
		}
	}
}

func missingNumber(w *world) {
	door, tenant, _ := w.damaged()
	// Final tries are all that is left of what was delivered; the sums do not need them.
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {attempt} WHERE shard = %d AND outcome = 'delivered'`, tenant.Shard)))
	w.equal("without depth", w.broken(false), []string{})
	if len(w.broken(true)) == 0 {
		w.Error("in depth the missing number is not found")
	}
}

func damagedShard(w *world) {
	door, tenant, _ := w.damaged()
	other := w.tenant("globex")
	if other.Shard == tenant.Shard {
		w.Fatal("the keys were chosen badly")
	}
	w.endpoint(other, "*")
	w.everySort(w.plannedMany(other, "a.b", 7))
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {delivery} WHERE shard = %d`, tenant.Shard)))
	for _, deep := range []bool{false, true} {
		where := w.broken(deep)
		if len(where) == 0 {
			w.Error("nothing is found")
		}
		if strings.Contains(strings.Join(where, "\n"), fmt.Sprintf("shard %d", other.Shard)) {
			w.Errorf("deep %v: the healthy shard is named: %q", deep, where)
		}
	}
}
