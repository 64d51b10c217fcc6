package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestDispatch_isStoppedAndStarted(t *testing.T) { onBoth(t, dispatch_isStoppedAndStarted) }

func dispatch_isStoppedAndStarted(t *testing.T, f *fixture) {
	if diff := cmp.Diff(map[string]any{"state": "running", "reason": "", "at": nil, "by": nil}, f.call("GET", "/v1/dispatch", nil).want(http.StatusOK).json()); diff != "" {
		t.Error(diff)
	}
	set := f.call("PUT", "/v1/dispatch", `{"state":"paused","reason":"The database moves."}`).want(http.StatusOK).json()
	if set["state"] != "paused" || set["reason"] != "The database moves." || set["by"] != "bootstrap" || set["at"] == nil {
		t.Errorf("answer %v", set)
	}
	if diff := cmp.Diff(set, f.call("GET", "/v1/dispatch", nil, "Authorization", "Bearer "+readKey).json()); diff != "" {
		t.Error(diff)
	}
	f.tenant("acme")
	f.publish("acme", "a.b", "1") // publishing goes on
	if resumed := f.call("PUT", "/v1/dispatch", `{"state":"running"}`).want(http.StatusOK).json(); resumed["state"] != "running" || resumed["reason"] != "" {
		t.Errorf("answer %v", resumed)
	}
	f.call("GET", "/v1/dispatch", nil, "Authorization", "Bearer "+acmeKey).wantProblem(403, CodeForbidden)
	for body, code := range map[string]Code{
		`{}`:                               CodeMissingField,
		`{"reason":"x"}`:                   CodeMissingField,
		`{"state":"off"}`:                  CodeInvalidField,
		`{"state":null}`:                   CodeInvalidField,
		`{"paused":true,"state":"paused"}`: CodeUnknownField,
		`{"state":"paused","reason":"` + strings.Repeat("x", maxReason+1) + `"}`: CodeInvalidField,
	} {
		f.call("PUT", "/v1/dispatch", body).wantProblem(422, code)
	}
	if state := f.call("GET", "/v1/dispatch", nil).text("state"); state != "running" {
		t.Errorf("after refused requests it is %s", state)
	}
}

// foreign is a store whose database belongs to another environment.
type foreign struct{ Store }

func (f foreign) Dispatch(ctx context.Context) (outbox.DispatchState, error) {
	state, err := f.Store.Dispatch(ctx)
	state.Environment = "production"
	return state.In("staging"), err
}

func TestDispatch_staysStoppedForAnotherEnvironment(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.Store = foreign{cfg.Store} })
	state := f.call("GET", "/v1/dispatch", nil).want(200).json()
	if state["state"] != "paused" || !strings.Contains(state["reason"].(string), "waybill adopt") {
		t.Errorf("state %v", state)
	}
	f.call("PUT", "/v1/dispatch", `{"state":"running"}`).wantProblem(409, CodeForeignEnvironment)
	f.call("PUT", "/v1/dispatch", `{"state":"paused"}`).want(200)
}
