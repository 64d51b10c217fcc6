package outboxtest

import (
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var careful = topic{"careful", []promise{
	{"what is written down is found by shard, with its strikes", suspectsAreFound},
	{"strikes are counted, each once", strikesCount},
	{"a result takes its delivery out, an ordinary one looks for none", resultClearsSuspect},
	{"what survived is forgotten", suspectsAreCleared},
	{"what is not there any more is forgotten when the next owner looks", goneSuspectsAreForgotten},
	{"only the owner writes suspects down", suspectsNeedTheLease},
}}

// suspects reads what is written down for the shards.
func (w *world) suspects(shards ...outbox.Shard) []outbox.Suspect {
	w.Helper()
	found, err := w.store.Suspects(w.ctx, shards)
	w.must(err)
	return found
}

func (w *world) mark(suspects ...outbox.Suspect) {
	w.Helper()
	w.must(w.store.MarkSuspects(w.ctx, w.lease, suspects, w.now))
}

func suspectOf(d outbox.Delivery) outbox.Suspect {
	return outbox.Suspect{Shard: d.Shard, Delivery: d.ID}
}

func suspectsAreFound(w *world) {
	acme, globex := w.strangers("acme")
	d := w.planned(w.endpoint(acme, "*"), "a.b")
	other := w.planned(w.endpoint(globex, "*"), "a.b")
	w.publishOne(acme, "a.b", `{}`)
	row := w.outbox()[0]
	of, waiting := suspectOf(d), outbox.Suspect{Shard: row.Shard, Pos: row.Pos, Strikes: 2}

	w.equal("before", w.suspects(everyShard()...), []outbox.Suspect{})
	w.mark()
	w.mark(of, waiting, suspectOf(other), of)
	w.equal("acme's shard", w.suspects(acme.Shard), []outbox.Suspect{waiting, of})
	w.equal("the other shard", w.suspects(globex.Shard), []outbox.Suspect{suspectOf(other)})
	w.equal("no shard", w.suspects(), []outbox.Suspect{})

	w.mark(of, outbox.Suspect{Shard: row.Shard, Pos: row.Pos, Strikes: 1})
	w.equal("marked again, the larger number of strikes stays", w.suspects(acme.Shard), []outbox.Suspect{waiting, of})
	w.verify()
}

func strikesCount(w *world) {
	d := w.planned(w.endpoint(w.tenant("acme"), "*"), "a.b")
	one := suspectOf(d)
	for want := 1; want <= 3; want++ {
		for range 2 { // the same death told twice
			count, err := w.store.Strike(w.ctx, w.lease, one, w.now)
			w.must(err)
			w.equal("strikes", count, want)
		}
		one.Strikes = want
		w.equal("as written down", w.suspects(d.Shard), []outbox.Suspect{one})
	}
}

func resultClearsSuspect(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	results := []outbox.Result{w.delivered(w.planned(e, "a.b")), w.failed(w.planned(e, "a.b")), w.refused(w.planned(e, "a.b"))}
	bystander, ordinary := w.planned(e, "a.b"), w.failed(w.planned(e, "a.b"))
	want := []outbox.Suspect{suspectOf(bystander), suspectOf(ordinary.Delivery)}
	w.mark(want...)
	for i := range results {
		w.mark(suspectOf(results[i].Delivery))
		results[i].Suspect = true
	}
	w.finish(append(results, ordinary)...)
	w.equal("left", len(w.suspects(bystander.Shard)), 2)
	for _, s := range w.suspects(bystander.Shard) {
		if s != want[0] && s != want[1] {
			w.Errorf("%+v is left", s)
		}
	}
	w.finish(results...) // again, as after an unknown commit
	w.verify()
}

func suspectsAreCleared(w *world) {
	acme := w.tenant("acme")
	d := w.planned(w.endpoint(acme, "*"), "a.b")
	w.publishOne(acme, "a.b", `{}`)
	waiting := outbox.Suspect{Shard: acme.Shard, Pos: w.outbox()[0].Pos}
	w.mark(suspectOf(d), waiting)
	for range 2 {
		w.must(w.store.ClearSuspects(w.ctx, w.lease, []outbox.Suspect{waiting}))
		w.equal("left", w.suspects(acme.Shard), []outbox.Suspect{suspectOf(d)})
	}
	w.must(w.store.ClearSuspects(w.ctx, w.lease, []outbox.Suspect{waiting, suspectOf(d)}))
	w.must(w.store.ClearSuspects(w.ctx, w.lease, nil))
	w.equal("left", w.suspects(acme.Shard), []outbox.Suspect{})
}

func goneSuspectsAreForgotten(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	ended, stays := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.publishOne(acme, "a.b", `{}`)
	routed := outbox.Suspect{Shard: acme.Shard, Pos: w.outbox()[0].Pos}
	w.mark(suspectOf(ended), suspectOf(stays), routed)
	w.finish(w.delivered(ended)) // by a node that had not written it down
	w.route()
	w.equal("found", w.suspects(acme.Shard), []outbox.Suspect{suspectOf(stays)})
}

func suspectsNeedTheLease(w *world) {
	d := w.planned(w.endpoint(w.tenant("acme"), "*"), "a.b")
	one := suspectOf(d)
	w.mark(one)
	lost := w.lease
	w.lease = w.takeAll(w.join())
	_, strike := w.store.Strike(w.ctx, lost, one, w.now)
	for what, err := range map[string]error{
		"mark":   w.store.MarkSuspects(w.ctx, lost, []outbox.Suspect{{Shard: one.Shard, Delivery: one.Delivery, Strikes: 3}}, w.now.Add(time.Second)),
		"strike": strike,
		"clear":  w.store.ClearSuspects(w.ctx, lost, []outbox.Suspect{one}),
	} {
		if !errors.Is(err, outbox.ErrFenced) {
			w.Errorf("%s: %v, want fenced", what, err)
		}
	}
	w.equal("as it was", w.suspects(d.Shard), []outbox.Suspect{one})
}
