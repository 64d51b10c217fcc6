package outboxtest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var figures = topic{"figures", []promise{
	{"everything that was counted comes back", figuresComeBack},
	{"figures are of one tenant, one endpoint, one span of time", figuresAreApart},
	{"folding changes no sum, and leaves minutes and then hours", figuresFold},
	{"figures are forgotten with everything else", figuresAreForgotten},
	{"failing endpoints are ranked, and those that only succeed are not among them", failingRanked},
}}

// counted is figures in which every field differs from every other.
func counted(n int64) outbox.Counts {
	c := outbox.Counts{
		Published: n, Unmatched: n + 1, Planned: n + 2, Delivered: n + 3, Failed: n + 4, Cancelled: n + 5,
		Succeeded: n + 6, Transient: n + 7, Permanent: n + 8,
	}
	for i := range n {
		c.Answer.Observe(time.Duration(i) * time.Millisecond)
		c.First.Observe(time.Second)
	}
	c.Arrived.Observe(8 * time.Hour)
	return c
}

func (w *world) traffic(q outbox.TrafficQuery) []outbox.Traffic {
	w.Helper()
	rows, err := w.store.TrafficOf(w.ctx, q)
	w.must(err)
	return rows
}

func (w *world) sameTraffic(what string, got, want []outbox.Traffic) {
	w.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outbox.Latencies{})); diff != "" {
		w.Fatalf("%s (- want, + got):\n%s", what, diff)
	}
}

func figuresComeBack(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	at := w.now.Truncate(time.Minute)
	rows := []outbox.Traffic{
		{At: at, Counts: counted(1)},
		{At: at, Tenant: acme.ID, Counts: counted(20)},
		{At: at, Tenant: acme.ID, Endpoint: e.ID, Counts: outbox.Counts{Permanent: 1}},
	}
	w.must(w.store.AddTraffic(w.ctx, rows))
	hour := outbox.TrafficQuery{From: at.Add(-time.Hour), To: at.Add(time.Second)}
	w.sameTraffic("of all", w.traffic(hour), rows[:1])
	hour.Tenant = acme.TenantRef
	w.sameTraffic("of the tenant", w.traffic(hour), rows[1:2])
	hour.Endpoint = e.ID
	w.sameTraffic("of the endpoint", w.traffic(hour), rows[2:])
}

func figuresAreApart(w *world) {
	acme, other := w.neighbours("acme")
	at := w.now.Truncate(time.Minute)
	w.must(w.store.AddTraffic(w.ctx, []outbox.Traffic{
		{At: at, Tenant: acme.ID, Counts: outbox.Counts{Published: 1}},
		{At: at, Tenant: other.ID, Counts: outbox.Counts{Published: 2}},
		{At: at.Add(time.Minute), Tenant: acme.ID, Counts: outbox.Counts{Published: 4}},
	}))
	first := w.traffic(outbox.TrafficQuery{Tenant: acme.TenantRef, From: at, To: at.Add(time.Minute)})
	w.sameTraffic("the first minute", first, []outbox.Traffic{{At: at, Tenant: acme.ID, Counts: outbox.Counts{Published: 1}}})
	w.equal("rows of both minutes", len(w.traffic(outbox.TrafficQuery{Tenant: acme.TenantRef, From: at, To: at.Add(2 * time.Minute)})), 2)
}

func figuresFold(w *world) {
	acme := w.tenant("acme")
	start := w.now.Truncate(time.Hour)
	for second := range 180 {
		at := start.Add(time.Duration(second) * time.Second)
		w.must(w.store.AddTraffic(w.ctx, []outbox.Traffic{{At: at, Tenant: acme.ID, Counts: counted(2)}}))
	}
	day := outbox.TrafficQuery{Tenant: acme.TenantRef, From: start, To: start.Add(time.Hour)}
	want := outbox.FoldTraffic(w.traffic(day), time.Hour)
	w.equal("seconds", len(w.traffic(day)), 180)
	for _, step := range []struct {
		after time.Duration
		rows  int
	}{{0, 180}, {10 * time.Minute, 3}, {72 * time.Hour, 1}} {
		w.now = start.Add(step.after)
		w.maintain()
		w.equal("rows after "+step.after.String(), len(w.traffic(day)), step.rows)
		w.sameTraffic("sums after "+step.after.String(), outbox.FoldTraffic(w.traffic(day), time.Hour), want)
	}
}

func figuresAreForgotten(w *world) {
	at := w.now.Truncate(time.Hour)
	w.must(w.store.AddTraffic(w.ctx, []outbox.Traffic{{At: at, Counts: outbox.Counts{Published: 1}}}))
	all := outbox.TrafficQuery{From: at, To: at.Add(time.Hour)}
	w.now = at.Add(kept - time.Hour)
	w.maintain()
	w.equal("rows within retention", len(w.traffic(all)), 1)
	w.now = at.Add(kept + time.Hour)
	w.maintain()
	w.maintain()
	w.equal("rows after it", len(w.traffic(all)), 0)
}

func failingRanked(w *world) {
	acme := w.tenant("acme")
	bad, worse, fine := w.endpoint(acme, "*"), w.endpoint(acme, "*"), w.endpoint(acme, "*")
	add := func(e outbox.Endpoint, age time.Duration, c outbox.Counts) {
		w.must(w.store.AddTraffic(w.ctx, []outbox.Traffic{{At: w.now.Add(-age), Tenant: acme.ID, Endpoint: e.ID, Counts: c}}))
	}
	add(bad, 0, outbox.Counts{Transient: 3, Succeeded: 90, Failed: 1})
	add(bad, time.Hour, outbox.Counts{Transient: 1000})
	add(worse, 0, outbox.Counts{Permanent: 2})
	add(worse, time.Minute, outbox.Counts{Permanent: 2})
	add(fine, 0, outbox.Counts{Succeeded: 1000})
	ranked, err := w.store.FailingEndpoints(w.ctx, w.now.Add(-10*time.Minute), 10)
	w.must(err)
	w.equal("ranked", len(ranked), 2)
	w.equal("first", ranked[0].Endpoint, worse.ID)
	w.equal("its refusals", ranked[0].Permanent, int64(4))
	w.equal("second", ranked[1].Endpoint, bad.ID)
	w.equal("its tries", ranked[1].Attempts(), int64(93))
	ranked, err = w.store.FailingEndpoints(w.ctx, w.now.Add(-2*time.Hour), 1)
	w.must(err)
	w.equal("worst of two hours", ranked[0].Endpoint, bad.ID)
	w.equal("ranked, at most one", len(ranked), 1)
}
