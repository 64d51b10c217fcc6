package outboxtest

import (
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var environments = topic{"environments", []promise{
	{"the first to come names the environment, until another adopts the database", environmentNamed},
	{"the stop switch tells the environment, and keeps it", environmentSeen},
}}

func environmentNamed(w *world) {
	for _, name := range []string{"production", "staging", "production"} {
		got, err := w.store.ClaimEnvironment(w.ctx, name)
		w.must(err)
		if got != "production" {
			w.Fatalf("claimed as %s by the first, %s says it is %q", "production", name, got)
		}
	}
	former, err := w.store.AdoptEnvironment(w.ctx, "staging")
	w.must(err)
	got, err := w.store.ClaimEnvironment(w.ctx, "production")
	w.must(err)
	if former != "production" || got != "staging" {
		w.Fatalf("adopted from %q, it is %q", former, got)
	}
}

func environmentSeen(w *world) {
	former, err := w.store.AdoptEnvironment(w.ctx, "staging")
	w.must(err)
	if former != "" {
		w.Fatalf("nobody named it %q", former)
	}
	w.must(w.store.SetDispatch(w.ctx, outbox.DispatchState{Reason: "x", At: w.now, By: "somebody"}))
	node := outbox.NewNodeID(w.now)
	w.must(w.store.Join(w.ctx, node, w.now))
	beat, err := w.store.Beat(w.ctx, node, false)
	w.must(err)
	asked, err := w.store.Dispatch(w.ctx)
	w.must(err)
	want := outbox.DispatchState{Reason: "x", At: w.now, By: "somebody", Environment: "staging"}
	w.equal("the switch", asked, want)
	w.equal("the heartbeat", beat.Dispatch, want)
	w.equal("at home", want.In("staging"), want)
	if away := want.In("production"); !away.Paused || !away.Foreign || !strings.Contains(away.Reason, "waybill adopt") {
		w.Fatalf("elsewhere: %+v", away)
	}
}
