package api

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// pruneRoutes is retention by hand.
func pruneRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/prune", name: "prune", tag: "Operator", scope: ScopeAdmin, operator: true,
			summary: "Remove old events and attempts before their time",
			about:   "Whole days go, in the background, as retention would remove them. What is pending stays, and so do dead letters with all they need. The answer says from which time on everything is kept, which is earlier than asked where pending deliveries may need more.",
			body:    describe("PruneInput", pruneFields), answers: map[int]any{202: pruneView{}}, handle: (*API).postPrune},
	}
}

type pruneView struct {
	Before stamp `json:"before" doc:"What was accepted before this time goes"`
}

var pruneFields = []field[time.Time]{
	{
		name: "before", about: "RFC 3339; its day and later ones are kept.", required: true, schema: &huma.Schema{Type: huma.TypeString, Format: "date-time"},
		set: func(before *time.Time, v value) { *before, _ = v.moment() },
	},
}

func (a *API) postPrune(q *request) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	var before time.Time
	if err := fillBody(q, raw, pruneFields, &before); err != nil {
		return nil, err
	}
	// Before it begins: it goes on when nobody waits for it any more.
	q.records("events.prune", "", outbox.Changes{"before": {To: stamp(before)}})
	if err := q.store.Note(q.Context()); err != nil {
		return nil, err
	}
	applies := a.cfg.Prune(before)
	a.cfg.Log.InfoContext(q.Context(), "old events and attempts are removed", "request_id", q.id, "before", applies, "by", q.who.Name)
	return &answer{status: http.StatusAccepted, body: pruneView{stamp(applies)}}, nil
}
