package api

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestAttempt_whatAPrivateNetworkAnswersIsForOperators(t *testing.T) {
	for _, row := range []struct {
		name        string
		opened, all bool
		hidden      bool
	}{
		{"a public address, to a customer", false, false, false},
		{"a public address, to an operator", false, true, false},
		{"an opened address, to a customer", true, false, true},
		{"an opened address, to an operator", true, true, false},
	} {
		view := viewAttempt(&outbox.AttemptView{Attempt: outbox.Attempt{
			StatusCode: 500, Opened: row.opened, ResponseBody: []byte("inside"), ResponseHeaders: []outbox.Header{{Name: "server", Value: "inside"}},
		}}, row.all)
		shown := view.Response.Body != nil || len(view.Response.Headers) > 0
		if view.Response.Hidden != row.hidden || shown == row.hidden || *view.StatusCode != 500 {
			t.Errorf("%s: %+v", row.name, *view.Response)
		}
	}
}

func TestAttempt_whoSeesAll(t *testing.T) {
	customer, operator := &request{who: Holder{Tenant: "acme"}}, &request{who: Holder{}}
	if a := (&API{}); a.seesAll(customer) || !a.seesAll(operator) {
		t.Error("a server shows the wrong people what private networks answer")
	}
	if a := (&API{cfg: Config{Development: true}}); !a.seesAll(customer) {
		t.Error("on a machine of one's own a customer sees less than all")
	}
}
