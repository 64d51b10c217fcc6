package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// table is the delivery table, as far as a scheduler depends on it.
type table map[outbox.DeliveryID]outbox.Delivery

// read answers one request the way a store does: rows behind the cursor in order.
func (tb table) read(r outbox.FetchRequest, now time.Time, cut int) outbox.Fetched {
	var rows []outbox.Due
	for _, d := range tb {
		p := positionOf(&d)
		if d.Endpoint == r.Endpoint && d.Lane == r.Lane && (position{r.AfterNextAt, r.AfterID}).before(p) {
			rows = append(rows, outbox.Due{Delivery: d, Payload: []byte("{}")})
		}
	}
	slices.SortFunc(rows, func(a, b outbox.Due) int {
		if positionOf(&a.Delivery).before(positionOf(&b.Delivery)) {
			return -1
		}
		return 1
	})
	f := outbox.Fetched{Rows: rows[:min(len(rows), r.Limit)]}
	if cut > 0 && len(f.Rows) > cut && !f.Rows[cut].NextAt.After(now) {
		f.Rows, f.Cut = f.Rows[:cut], true
	}
	return f
}

// TestScheduler_losesNoRow plays commits, fetches that answer late, attempts, retries, parking
// and lost shards in random order, and then lets time pass: every row must have been handed out
// without the once-a-minute net, and none while it was already out.
func TestScheduler_losesNoRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.IntRange(1, 10).Draw(t, "node"))
		db := table{}
		w.addTenant(1, 1, rapid.IntRange(1, 4).Draw(t, "cap"))
		shard := map[outbox.Shard]bool{1: true}
		var ids []outbox.EndpointID
		for range rapid.IntRange(1, 3).Draw(t, "endpoints") {
			ids = append(ids, w.addEndpoint(1).id)
		}
		var out []struct {
			read
			rows outbox.Fetched
			at   time.Time
		}
		var flying []*work
		delivered := 0
		healed := false
		var routed []outbox.Delivery // committed, the router has not heard of it yet
		var late []outbox.Delivery   // reserved by a routing that will find its rows gone
		giveUp := func() {
			for i := range late {
				w.release(&late[i], true)
			}
			late = nil
		}
		hear := func() {
			d := routed[0]
			routed = routed[1:]
			if rapid.IntRange(0, 4).Draw(t, "answer") == 0 {
				w.release(&d, true) // the commit's answer was lost
				return
			}
			w.offer(outbox.Due{Delivery: d, Payload: []byte("{}")})
		}

		commit := func(n int, lane outbox.Lane, in time.Duration) {
			for range n {
				id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "to")]
				d := outbox.Delivery{Shard: 1, Tenant: 1, Endpoint: id, Lane: lane, NextAt: w.now.Add(in)}
				d.ID = outbox.NewDeliveryID(outbox.NewEventID(start), id)
				if lane == outbox.LaneLive && in == 0 {
					w.reserve(d.ID)
					routed = append(routed, d)
				}
				db[d.ID] = d
				if lane != outbox.LaneLive || in != 0 {
					w.lower(&d)
				}
			}
		}
		answer := func(i int) {
			f := out[i]
			out = append(out[:i:i], out[i+1:]...)
			if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
				w.failed(f.read, w.now.Add(time.Second))
				return
			}
			w.fetched(f.read, f.rows, f.at)
		}
		ask := func() {
			for _, r := range w.wants(w.now, 2) {
				out = append(out, struct {
					read
					rows outbox.Fetched
					at   time.Time
				}{r, db.read(r.request, w.now, rapid.IntRange(0, 3).Draw(t, "cut")), w.now})
			}
		}
		end := func(i int) {
			x := flying[i]
			flying = append(flying[:i:i], flying[i+1:]...)
			outcome := rapid.IntRange(0, 5).Draw(t, "outcome")
			if healed {
				outcome = 2
			}
			switch outcome {
			case 0: // retry: the row moves, then the scheduler hears of it
				w.learn(x, &outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}, 0, w.now, 0.5)
				w.ended(x, time.Second)
				d := db[x.due.ID]
				d.Attempt++
				d.NextAt = w.now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "backoff")) * time.Millisecond)
				db[d.ID] = d
				w.recorded(x, d.NextAt)
			case 1:
				w.ended(x, time.Second)
				w.abandoned(x, w.now)
			default:
				w.learn(x, &outbox.Attempt{Outcome: outbox.OutcomeDelivered}, 0, w.now, 0.5)
				w.ended(x, time.Second)
				delete(db, x.due.ID)
				delivered++
				w.recorded(x, time.Time{})
			}
		}
		run := func() bool {
			x := w.next()
			if x == nil {
				return false
			}
			if slices.ContainsFunc(flying, func(f *work) bool { return f.due.ID == x.due.ID }) {
				t.Fatalf("%v is handed out while it is out", x.due.ID)
			}
			if _, exists := db[x.due.ID]; !exists {
				t.Fatalf("%v is handed out after it ended", x.due.ID)
			}
			flying = append(flying, x)
			return true
		}
		park := func(on bool) {
			for _, id := range ids {
				e := w.endpoints[id]
				if e == nil {
					continue
				}
				if e.parked = on; on {
					w.park(e)
				} else {
					w.rouse(e)
				}
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				commit(rapid.IntRange(1, 12).Draw(t, "n"), outbox.LaneLive, 0)
			case 2:
				commit(rapid.IntRange(1, 4).Draw(t, "n"), outbox.LaneReplay, 0)
			case 3:
				commit(1, outbox.LaneLive, rapid.SampledFrom([]time.Duration{time.Second, -freshAfter}).Draw(t, "in"))
			case 4:
				ask()
			case 5:
				if len(out) > 0 {
					answer(rapid.IntRange(0, len(out)-1).Draw(t, "which"))
				}
			case 6:
				run()
			case 7:
				if len(routed) > 0 {
					hear()
				}
				if rapid.Bool().Draw(t, "gives up") {
					giveUp()
				}
			case 8:
				if len(flying) > 0 {
					end(rapid.IntRange(0, len(flying)-1).Draw(t, "which"))
				}
			case 9:
				switch rapid.IntRange(0, 5).Draw(t, "trouble") {
				case 0:
					park(true)
				case 1:
					park(false)
				case 4: // rows that were routed before are routed again by a reader that was late
					for _, d := range db {
						again := d
						again.NextAt = w.now
						w.reserve(d.ID)
						late = append(late, again)
					}
				case 3: // an outage: the breaker opens, with the next failure at the latest
					w.endpoints[ids[0]].breaker.failures = breakerAfter - 1
				case 2: // the shard is given up and taken again
					w.dropShards(shard)
					w.addTenant(1, 1, 2)
					for _, id := range ids {
						w.endpoint(id, 1, 1)
					}
					w.heads(db.heads())
				}
			}
		}
		park(false)
		for len(routed) > 0 {
			hear()
		}
		giveUp()
		healed = true
		for range 10_000 {
			ask()
			w.openGates()
			for len(out) > 0 {
				answer(0)
			}
			for run() {
			}
			for len(flying) > 0 {
				end(0)
			}
			if len(db) == 0 {
				break
			}
			w.now = w.now.Add(500 * time.Millisecond)
		}
		if len(db) > 0 {
			d := slices.Collect(maps.Values(db))[0]
			t.Fatalf("%d rows were never handed out, for example one due %v ago, lane %d", len(db), w.now.Sub(d.NextAt), d.Lane)
		}
		if len(w.taken) != 0 || len(w.reserved) != 0 || w.bytesReady != 0 || w.running != 0 || w.pending != 0 {
			t.Fatalf("left behind: %d taken, %d bytes, %d running, %d pending", len(w.taken), w.bytesReady, w.running, w.pending)
		}
		for _, tenant := range w.tenants {
			if tenant.ready != 0 || tenant.inFlight != 0 {
				t.Fatalf("left behind: tenant counts %d ready, %d in flight", tenant.ready, tenant.inFlight)
			}
		}
	})
}

func (tb table) heads() []outbox.Head {
	first := map[outbox.EndpointID]map[outbox.Lane]outbox.Delivery{}
	for _, d := range tb {
		if first[d.Endpoint] == nil {
			first[d.Endpoint] = map[outbox.Lane]outbox.Delivery{}
		}
		if have, ok := first[d.Endpoint][d.Lane]; !ok || d.NextAt.Before(have.NextAt) {
			first[d.Endpoint][d.Lane] = d
		}
	}
	var heads []outbox.Head
	for _, lanes := range first {
		for _, d := range lanes {
			heads = append(heads, outbox.Head{Shard: 1, Endpoint: d.Endpoint, Tenant: 1, Lane: d.Lane, NextAt: d.NextAt})
		}
	}
	return heads
}
