package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

func TestExport_hasEverythingOfATenantAndItsBytes(t *testing.T) {
	s := serve(t)
	_, url := receiver(t)
	for _, tenant := range []string{"acme", "other"} {
		ok(t, s.dir, s.env, "tenants", "put", tenant)
	}
	ok(t, s.dir, s.env, "endpoints", "create", url, "--tenant", "acme")
	const payload = "{ \"é\":1.10,\n \"b\":\"<&>\"}"
	id := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "order.paid", payload))
	strange := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "other", "order.paid", "{}"))
	wait(t, "the delivery", func() bool {
		page := decode[client.Page[client.Delivery]](t, ok(t, s.dir, s.env, "deliveries", "list", "--tenant", "acme", "--state", "delivered", "--json"))
		return len(page.Data) == 1
	})

	out := ok(t, s.dir, s.env, "export", "--tenant", "acme", "--from", "2026-01-01T00:00:00Z")
	if strings.Contains(out, strange) {
		t.Errorf("another tenant's event is in the export of acme:\n%s", out)
	}
	var kinds []string
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		var line struct {
			Kind    string
			Payload string `json:"payload_base64"`
			Event   struct{ ID string }
			Attempt struct {
				Outcome string
				Status  int `json:"status_code"`
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		kinds = append(kinds, line.Kind)
		switch line.Kind {
		case "event":
			if bytes, err := base64.StdEncoding.DecodeString(line.Payload); err != nil || string(bytes) != payload || line.Event.ID != id {
				t.Errorf("event %s with %q: %v", line.Event.ID, bytes, err)
			}
		case "attempt":
			if line.Attempt.Outcome != "delivered" || line.Attempt.Status != 204 {
				t.Errorf("the attempt is %+v", line.Attempt)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "event delivery attempt" {
		t.Errorf("the lines are %s", got)
	}
	if all := ok(t, s.dir, s.env, "export", "--payloads=false"); !strings.Contains(all, id) || !strings.Contains(all, strange) || strings.Contains(all, "payload_base64") {
		t.Errorf("all tenants without payloads:\n%s", all)
	}
}

func TestPrune_keepsWhatPendingDeliveriesMayNeed(t *testing.T) {
	s := serve(t, "WAYBILL_MAX_PENDING_AGE=1d", "WAYBILL_RETENTION=30d")
	done := decode[client.Pruned](t, ok(t, s.dir, s.env, "prune", "--before", "2999-01-01T00:00:00Z", "--json"))
	// A day that may be pending, and the days on both ends of that.
	if age := time.Since(done.Before); age < 3*24*time.Hour || age > 4*24*time.Hour {
		t.Errorf("what is older than %v goes", age)
	}
	if out := ok(t, s.dir, s.env, "prune", "--before", "2026-01-01T00:00:00Z"); !strings.Contains(out, "2026-01-01T00:00:00Z") {
		t.Errorf("it prints %q", out)
	}
	if r := waybill(t, s.dir, s.env, "", "prune"); r.code != exitUsage {
		t.Errorf("before nothing: %v", r)
	}
}
