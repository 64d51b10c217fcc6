package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/client"
)

func TestExplain_saysHowADeliveryStands(t *testing.T) {
	now := time.Now()
	base := client.Delivery{Tenant: "acme", EventType: "a.b", EndpointURL: "https://h.example/", CreatedAt: now, FinishedAt: new(now)}
	first := "a.b to https://h.example/, for acme."
	for name, row := range map[string]struct {
		change func(d *client.Delivery)
		want   []string
	}{
		"in a line": {
			func(d *client.Delivery) {
				d.State, d.FinishedAt, d.AttemptCount = "pending", nil, 1
				d.LastAttempt = &client.AttemptSummary{Message: "The server answered 503."}
				d.Waiting = &client.Waiting{Reason: "rate_limit", Detail: "Limited.", Ahead: new(1000), Capped: true, ETA: new(now.Add(90 * time.Second))}
			},
			[]string{"Pending since " + local(now) + ", 1 attempt so far.", "Last answer: The server answered 503.", "It waits (rate_limit): Limited.",
				"More than 1000 deliveries of the endpoint before it.", "Probably tried: " + local(now.Add(90*time.Second)) + " (in 1m30s)"},
		},
		"until a time that has come": {
			func(d *client.Delivery) {
				d.FinishedAt = nil
				d.Waiting = &client.Waiting{Reason: "breaker", Detail: "Open.", Until: new(now.Add(-time.Second))}
			},
			[]string{"Pending since " + local(now) + ", 0 attempts so far.", "It waits (breaker): Open.", "Until: " + local(now.Add(-time.Second)) + " (now)"},
		},
		"behind one": {
			func(d *client.Delivery) {
				d.FinishedAt = nil
				d.Waiting = &client.Waiting{Reason: "backlog", Detail: "Due.", Ahead: new(1)}
			},
			[]string{"Pending since " + local(now) + ", 0 attempts so far.", "It waits (backlog): Due.", "1 delivery of the endpoint before it."},
		},
		"dead": {
			func(d *client.Delivery) {
				d.State, d.AttemptCount, d.Dead = "dead", 2, &client.Dead{Reason: "permanent", Message: "The server answered 404."}
			},
			[]string{"It was dead at " + local(now) + ", after 2 attempts.", "Why (permanent): The server answered 404."},
		},
		"delivered": {
			func(d *client.Delivery) { d.State, d.AttemptCount = "delivered", 1 },
			[]string{"It was delivered at " + local(now) + ", after 1 attempt."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := base
			row.change(&d)
			if diff := cmp.Diff(append([]string{first}, row.want...), explain(&d, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The stop switch, a probe and a rotation, as an operator would type them.
func TestServe_stopsAndStartsByCommandLine(t *testing.T) {
	s := serve(t)
	receiver, address := receiver(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	made := decode[client.Endpoint](t, ok(t, s.dir, s.env, "endpoints", "create", "--tenant", "acme", address, "--uid", "crm", "--rate-limit", "50/1"))
	if out := ok(t, s.dir, s.env, "pause", "--reason", "moving house"); !strings.Contains(out, "waybill resume") {
		t.Errorf("pause printed %q", out)
	}
	id := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "a.b", "1"))
	var waiting client.Page[client.Delivery]
	wait(t, "the delivery to be planned", func() bool {
		waiting = decode[client.Page[client.Delivery]](t, ok(t, s.dir, s.env, "events", "deliveries", "--tenant", "acme", id, "--json"))
		return len(waiting.Data) == 1
	})
	// The node learns of it by its heartbeat, so this first delivery may have slipped out, or do so
	// between the two looks.
	if d := waiting.Data[0]; d.State == "pending" {
		if out := ok(t, s.dir, s.env, "why", d.ID); !strings.Contains(out, "It waits (dispatch_paused)") && !strings.Contains(out, "It was delivered") {
			t.Errorf("why printed %q", out)
		}
		if r := waybill(t, s.dir, s.env, "", "endpoints", "probe", "--tenant", "acme", "crm"); r.code != exitRefused || !strings.Contains(r.err, "endpoint_inactive") {
			t.Errorf("a probe meanwhile: %v", r)
		}
	}
	ok(t, s.dir, s.env, "resume")
	receiver.line(id)
	if out := ok(t, s.dir, s.env, "endpoints", "probe", "--tenant", "acme", "crm"); !strings.Contains(out, made.ID) {
		t.Errorf("probe printed %q", out)
	}

	rotated := decode[client.Endpoint](t, ok(t, s.dir, s.env, "endpoints", "rotate-secret", "--tenant", "acme", "crm", "--overlap-seconds", "0"))
	if rotated.Secret == "" || rotated.Secret == made.Secret {
		t.Error("no new secret is shown")
	}
	if r := waybill(t, s.dir, s.env, made.Secret+"\n", "endpoints", "rotate-secret", "--tenant", "acme", "crm", "--secret", "@-"); r.code != exitOK || decode[client.Endpoint](t, r.out).Secret != made.Secret {
		t.Errorf("rotating to one's own secret ended with %d", r.code)
	}
	if r := waybill(t, s.dir, s.env, "", "endpoints", "update", "--tenant", "acme", "crm", "--rate-limit", "fast"); r.code != exitUsage || !strings.Contains(r.err, "COUNT/SECONDS") {
		t.Errorf("a rate that is none: %v", r)
	}
	if out := ok(t, s.dir, s.env, "endpoints", "update", "--tenant", "acme", "crm", "--rate-limit", "none"); !strings.Contains(out, `"rate_limit": null`) {
		t.Errorf("update printed %s", out)
	}
	if out := ok(t, s.dir, s.env, "endpoints", "list"); !strings.Contains(out, "closed") {
		t.Errorf("the list is\n%s", out)
	}
}
