package outboxtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var fetching = topic{"fetching", []promise{
	{"rows come by time and id, page by page, without a gap at ties", fetchByKeyset},
	{"rows that are not due come without payload", fetchNotDue},
	{"requests are answered one by one", fetchRequests},
	{"payloads fit in the bytes given", fetchBytes},
	{"the first row of a request always comes", fetchFirstAlways},
	{"a payload that is gone is said to be gone", fetchGone},
	{"a whole batch is fetched from its own day", fetchOldEvents},
}}

func (w *world) fetch(now time.Time, maxBytes int64, requests ...outbox.FetchRequest) []outbox.Fetched {
	w.Helper()
	got, err := w.store.FetchDue(w.ctx, requests, now, maxBytes)
	w.must(err)
	if len(got) != len(requests) {
		w.Fatalf("%d answers for %d requests", len(got), len(requests))
	}
	return got
}

func request(e outbox.Endpoint, limit int) outbox.FetchRequest {
	return outbox.FetchRequest{Shard: e.Tenant.Shard, Endpoint: e.ID, Limit: limit}
}

func fetchByKeyset(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	var batch []outbox.NewEvent
	for range 60 {
		batch = append(batch, w.event(acme, "a.b", `{}`))
	}
	w.publish(batch...)
	planned := w.route()
	// Thirty keep one time; the others are put off to one of three, ten to each.
	for i, d := range planned[:30] {
		r := w.failed(d)
		r.RetryAt = w.now.Add(time.Duration(i%3) * time.Microsecond)
		w.finish(r)
		planned[i].NextAt, planned[i].Attempt = r.RetryAt, 1
	}
	slices.SortFunc(planned, func(a, b outbox.Delivery) int {
		if c := a.NextAt.Compare(b.NextAt); c != 0 {
			return c
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	for _, limit := range []int{1, 7, 59, 60, 61} {
		var got []outbox.Delivery
		for r := request(e, limit); ; {
			page := w.fetch(w.now.Add(time.Second), 1<<20, r)[0]
			if len(page.Rows) > limit || page.Cut {
				w.Fatalf("%d rows, cut %v", len(page.Rows), page.Cut)
			}
			for _, d := range page.Rows {
				got = append(got, d.Delivery)
			}
			if len(page.Rows) < limit {
				break
			}
			last := page.Rows[limit-1]
			r.AfterNextAt, r.AfterID = last.NextAt, last.ID
		}
		w.equal(fmt.Sprintf("pages of %d", limit), got, planned)
	}
}

func fetchNotDue(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	first, second := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.finish(w.failed(first))
	minute := w.now.Add(time.Minute)
	rows := w.fetch(minute.Add(-time.Microsecond), 1<<20, request(e, 10))[0].Rows
	if len(rows) != 2 || rows[0].ID != second.ID || string(rows[0].Payload) != `{"n":1}` || rows[1].Payload != nil || rows[1].Gone {
		w.Errorf("before it is due: %+v", rows)
	}
	rows = w.fetch(minute, 1<<20, request(e, 10))[0].Rows
	if len(rows) != 2 || string(rows[1].Payload) != `{"n":1}` {
		w.Errorf("when it is due: %+v", rows)
	}
}

func fetchRequests(w *world) {
	acme, globex := w.neighbours("acme")
	one, two, theirs := w.endpoint(acme, "one"), w.endpoint(acme, "two"), w.endpoint(globex, "*")
	w.planned(one, "one")
	b, c := w.planned(two, "two"), w.planned(theirs, "one")
	w.finish(w.delivered(b))
	w.replay(b)
	inReplay := request(two, 5)
	inReplay.Lane = outbox.LaneReplay
	otherShard := request(one, 5)
	otherShard.Shard++
	got := w.fetch(w.now, 1<<20, request(theirs, 5), request(two, 5), inReplay, otherShard, request(one, 0), request(one, 5))
	var counts []int
	for _, f := range got {
		counts = append(counts, len(f.Rows))
	}
	w.equal("rows by request", counts, []int{1, 0, 1, 0, 0, 1})
	w.equal("tenant", got[0].Rows[0].Tenant, globex.ID)
	w.equal("delivery", got[0].Rows[0].ID, c.ID)
	w.equal("none", len(w.fetch(w.now, 1<<20)), 0)
}

func fetchBytes(w *world) {
	acme := w.tenant("acme")
	one, two := w.endpoint(acme, "one"), w.endpoint(acme, "two")
	for i := range 5 {
		payload := fmt.Sprintf(`"%s"`, strings.Repeat("x", 98))
		w.publishOne(acme, []string{"one", "two"}[i%2], payload) // 3 of one, 2 of two
	}
	w.route()
	full := w.fetch(w.now, 1<<20, request(one, 10), request(two, 10))
	for _, maxBytes := range []int64{100, 199, 200, 299, 300, 399, 400, 499, 500, 501} {
		got := w.fetch(w.now, maxBytes, request(one, 10), request(two, 10))
		var total int64
		for i, f := range got {
			for j, d := range f.Rows {
				total += int64(len(d.Payload))
				w.equal("row", d.ID, full[i].Rows[j].ID) // a prefix of what there is
			}
			if cut := len(f.Rows) < len(full[i].Rows); cut != f.Cut {
				w.Errorf("%d bytes: request %d gave %d of %d rows and says cut %v", maxBytes, i, len(f.Rows), len(full[i].Rows), f.Cut)
			}
			if len(f.Rows) == 0 {
				w.Errorf("%d bytes: request %d starves", maxBytes, i)
			}
		}
		// The first row of each request comes whatever it takes: here 100 bytes of one of them.
		if total > maxBytes+100 {
			w.Errorf("%d bytes of payload, the limit is %d", total, maxBytes)
		}
		if maxBytes >= 500 && total != 500 {
			w.Errorf("%d bytes of payload, all 500 fit", total)
		}
	}
	// A row that is not due takes no bytes.
	for _, f := range w.fetch(w.now.Add(-time.Second), 0, request(one, 10)) {
		w.equal("rows that are not due", len(f.Rows), 3)
	}
}

func fetchFirstAlways(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	big := strings.Repeat("x", outbox.HardMaxPayload)
	w.publishOne(acme, "a.b", big)
	w.publishOne(acme, "a.b", big)
	w.route()
	got := w.fetch(w.now, 1, request(e, 10))[0]
	if len(got.Rows) != 1 || len(got.Rows[0].Payload) != len(big) || !got.Cut {
		w.Errorf("%d rows, cut %v; want the first alone", len(got.Rows), got.Cut)
	}
	got = w.fetch(w.now, 1, request(e, 1))[0]
	if len(got.Rows) != 1 || got.Cut {
		w.Errorf("%d rows, cut %v; the limit is what ended it", len(got.Rows), got.Cut)
	}
}

func fetchGone(w *world) {
	door := w.backdoor()
	acme, globex := w.strangers("acme")
	lost, kept := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	w.planned(lost, "a.b")
	w.planned(kept, "a.b")
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {event} WHERE shard = %d`, acme.Shard)))
	got := w.fetch(w.now, 1<<20, request(lost, 10), request(kept, 10))
	if len(got[0].Rows) != 1 || !got[0].Rows[0].Gone || got[0].Rows[0].Payload != nil {
		w.Errorf("the lost one: %+v", got[0].Rows)
	}
	if len(got[1].Rows) != 1 || got[1].Rows[0].Gone || got[1].Rows[0].Payload == nil {
		w.Errorf("the kept one: %+v", got[1].Rows)
	}
}

func fetchOldEvents(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	// Chosen ids may lie a day back: the row is found where the id says, not where now is.
	want := map[outbox.EventID]string{}
	for hours := range 24 {
		event := w.event(acme, "a.b", fmt.Sprintf(`"%d hours"`, hours))
		event.ID = outbox.NewEventID(w.now.Add(-time.Duration(hours) * time.Hour))
		event.Chosen = true
		w.publish(event)
		want[event.ID] = string(event.Payload)
	}
	w.route()
	got := map[outbox.EventID]string{}
	for _, d := range w.pending(e, outbox.LaneLive) {
		got[d.Event] = string(d.Payload)
		w.equal("time of the event", d.EventCreatedAt, w.now)
	}
	w.equal("payloads", got, want)
}
