package api

import (
	"github.com/waybill-dev/waybill/internal/outbox"
)

// dispatchView is the stop switch.
type dispatchView struct {
	State  string  `json:"state" enum:"running,paused"`
	Reason string  `json:"reason"`
	At     *stamp  `json:"at" doc:"When it was last set; null: never"`
	By     *string `json:"by"`
}

const (
	dispatchRunning = "running"
	dispatchPaused  = "paused"
	maxReason       = 500
)

var dispatchFields = []field[outbox.DispatchState]{
	{
		name: "state", about: "paused: nothing is sent; publishing goes on.", required: true, schema: wordsSchema(dispatchRunning, dispatchPaused),
		set: func(s *outbox.DispatchState, v value) {
			if word, ok := v.oneOf(dispatchRunning, dispatchPaused); ok {
				s.Paused = word == dispatchPaused
			}
		},
	},
	{
		name: "reason", about: "For the other operators.", schema: textSchema(maxReason),
		set:   func(s *outbox.DispatchState, v value) { setText(&s.Reason, v, maxReason) },
		reset: func(s *outbox.DispatchState) { s.Reason = "" },
	},
}

func viewDispatch(s outbox.DispatchState) dispatchView {
	view := dispatchView{State: dispatchRunning, Reason: s.Reason, At: stampOf(s.At), By: orNull(s.By)}
	if s.Paused {
		view.State = dispatchPaused
	}
	return view
}

func (a *API) getDispatch(q *request) (*answer, error) {
	state, err := a.cfg.Store.Dispatch(q.Context())
	if err != nil {
		return nil, err
	}
	return ok(viewDispatch(state))
}

// putDispatch stops sending on all nodes, or starts it again. They learn of it by their next
// heartbeat, which also reaches a node that nobody can call.
func (a *API) putDispatch(q *request) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	state := outbox.DispatchState{At: q.now, By: q.who.Name}
	if err := fillBody(q, raw, dispatchFields, &state); err != nil {
		return nil, err
	}
	current, err := a.cfg.Store.Dispatch(q.Context())
	if err != nil {
		return nil, err
	}
	if current.Foreign && !state.Paused {
		return nil, fail(CodeForeignEnvironment, "%s", current.Reason)
	}
	action := "dispatch.resume"
	if state.Paused {
		action = "dispatch.pause"
	}
	q.records(action, "", outbox.Changes{"reason": {To: state.Reason}})
	if err := q.store.SetDispatch(q.Context(), state); err != nil {
		return nil, err
	}
	a.cfg.Log.InfoContext(q.Context(), "the stop switch was set", "request_id", q.id, "paused", state.Paused, "reason", state.Reason, "by", state.By)
	return ok(viewDispatch(state))
}
