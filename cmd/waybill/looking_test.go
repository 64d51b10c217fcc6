package main

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

func TestLooking_findsExplainsAndFollows(t *testing.T) {
	s := serve(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	ok(t, s.dir, s.env, "endpoints", "put", "--tenant", "acme", "erp-7", "--to", "http://127.0.0.1:1999/in", "--event-types", "order.*")
	tail := start(t, s.dir, s.env, "tail", "--tenant", "acme", "--json")
	var event, line string
	wait(t, "an attempt", func() bool { // those of before it looks are not shown
		event = strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "order.placed", `{}`))
		select {
		case line = <-tail.lines:
			return true
		default:
			return false
		}
	})
	seen := decode[client.SeenAttempt](t, line)
	if seen.Tenant != "acme" || seen.EventType != "order.placed" || seen.Outcome == "" {
		t.Errorf("it shows %s", line)
	}
	if code := tail.stop(interrupt); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for text, want := range map[string]string{"erp-7": "endpoint", "127.0.0.1:1999": "endpoint", "acm": "tenant", seen.DeliveryID: "delivery", event: "order.placed"} {
		if out := ok(t, s.dir, s.env, "find", text); !strings.Contains(out, want) {
			t.Errorf("find %s: %s", text, out)
		}
	}
	if r := waybill(t, s.dir, s.env, "", "find", "nothing-like-it"); r.code != exitNotFound || !strings.Contains(r.err, "nothing is found") {
		t.Errorf("what is not there: %v", r)
	}
	unwanted := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "payment.made", `{}`))
	wait(t, "that nobody wants it", func() bool {
		return strings.Contains(ok(t, s.dir, s.env, "why", unwanted), "unmatched")
	})
	if out := ok(t, s.dir, s.env, "why", unwanted); !strings.Contains(out, "127.0.0.1:1999/in did not get it: it does not want events of this type") {
		t.Errorf("why: %s", out)
	}
}
