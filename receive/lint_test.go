package receive_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/memstore"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// harms are the rules that a Sync, or an Inbox, breaks, and how much harm each does.
func harms(problems []receive.Problem) map[receive.Rule]receive.Harm {
	all := map[receive.Rule]receive.Harm{}
	for _, p := range problems {
		if p.Detail == "" || p.Remedy == "" {
			panic("a problem without words: " + p.Rule)
		}
		all[p.Rule] = p.Harm
	}
	return all
}

func TestSyncConfig_lint(t *testing.T) {
	handler := (&counter{}).handle
	config := func(p receive.Provider, change func(*receive.SyncConfig)) receive.SyncConfig {
		c := receive.SyncConfig{Source: receivetest.NewSource(t, "x", p), Store: receivetest.NewStore(), Handler: handler}
		if change != nil {
			change(&c)
		}
		return c
	}
	with := func(p receive.Provider, change func(*receive.Provider)) receive.Provider {
		change(&p)
		return p
	}
	for _, c := range []struct {
		says   string
		config receive.SyncConfig
		rule   receive.Rule // "": none stops the start
		harm   receive.Harm
	}{
		{"Svix as it is", config(providers.Svix(), nil), "", 0},
		{"Stripe as it is", config(providers.Stripe(), nil), "", 0},
		{"Slack as it is", config(providers.Slack(), nil), "", 0},
		{"a provider that tries once", config(providers.GitHub(), nil), receive.NoRetries, receive.Loses},
		{"every attempt within the lease", config(providers.Slack(), func(c *receive.SyncConfig) { c.Deadline = time.Hour }), receive.LeaseTooLong, receive.Loses},
		{"one attempt after the lease", config(providers.Linear(), func(c *receive.SyncConfig) { c.Deadline = 2 * time.Hour }), receive.SpendsLast, receive.Delays},
		{"an in-flight code that stops", config(with(providers.Mailgun(), func(p *receive.Provider) { p.Codes.InFlight = 406 }), nil), receive.StopCode, receive.Loses},
		{"a failed code that stops", config(with(providers.Brevo(), func(p *receive.Provider) { p.Codes.Failed = 503 }), nil), receive.StopCode, receive.Loses},
		{"a reject code that stops", config(with(providers.Postmark(), func(p *receive.Provider) { p.Codes.Rejected = 403 }), nil), receive.RejectStops, receive.Loses},
		{"a body limit below the provider's", config(providers.Postmark(), func(c *receive.SyncConfig) { c.Source.MaxBody = 1 << 20 }), receive.BodyLimit, receive.Loses},
		{"24 hours for Stripe", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Retain = 24 * time.Hour }), receive.ShortMemory, receive.Repeats},
		{"24 hours for Svix", config(providers.Svix(), func(c *receive.SyncConfig) { c.Retain = 24 * time.Hour }), receive.ShortMemory, receive.Repeats},
		{"7 days for Stripe", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Retain = 7 * 24 * time.Hour }), receive.ShortMemory, receive.Told},
		{"no id", config(providers.Discord(), nil), receive.NoID, receive.Repeats},
		{"an id that is not signed", config(providers.Shopify(), nil), receive.UnsignedID, receive.Told},
		{"a deadline beyond the provider's timeout", config(providers.Svix(), func(c *receive.SyncConfig) { c.Deadline = 15 * time.Second }), receive.DeadlineTooLong, receive.Delays},
		{"nowhere for dead letters", config(providers.Svix(), func(c *receive.SyncConfig) { c.Store, c.Waive = memstore.New(10), []receive.Rule{receive.Forgets} }), receive.NoDeadLetters, receive.Told},
		{"no secret", config(providers.Svix(), func(c *receive.SyncConfig) { c.Source.Secrets = nil }), receive.Secretless, receive.Loses},
		{"a short secret", config(providers.GitHub(), func(c *receive.SyncConfig) { c.Source.Secrets = receive.Secrets("hunter2") }), receive.Secretless, receive.Loses},
		{"an expired secret", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Source.Secrets[0].Until = time.Now().Add(-time.Hour) }), receive.Secretless, receive.Loses},
		{"a secret with a line's end", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Source.Secrets[0].Value += "\n" }), receive.Secretless, receive.Loses},
		{"no public URL for Square", config(providers.Square(), func(c *receive.SyncConfig) { c.Source.PublicURL = "" }), receive.NeedsURL, receive.Loses},
		{"no public URL for Twilio", config(providers.Twilio(), func(c *receive.SyncConfig) { c.Source.PublicURL = "" }), receive.NeedsURL, receive.Loses},
		{"no name", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Source.Name = "" }), receive.Incomplete, receive.Loses},
		{"no scheme", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Source.Provider.Scheme = nil }), receive.Incomplete, receive.Loses},
		{"no store", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Store = nil }), receive.Incomplete, receive.Loses},
		{"no handler", config(providers.Stripe(), func(c *receive.SyncConfig) { c.Handler = nil }), receive.Incomplete, receive.Loses},
		{"a pointer that is none", config(with(providers.Stripe(), func(p *receive.Provider) { p.ID.Pointer = "id" }), nil), receive.Incomplete, receive.Loses},
	} {
		t.Run(c.says, func(t *testing.T) {
			got := harms(c.config.Lint())
			if c.rule != "" && got[c.rule] != c.harm {
				t.Errorf("%s: %v, want %v; all: %v", c.rule, got[c.rule], c.harm, got)
			}
			_, err := receive.NewSync(t.Context(), c.config)
			stops := c.harm == receive.Loses || c.harm == receive.Repeats
			if (err != nil) != stops {
				t.Errorf("starts with %v", err)
			}
			if !stops {
				return
			}
			wantRule(t, err, c.rule)
			// By name alone, and not what no name may waive.
			c.config.Waive = []receive.Rule{c.rule}
			_, err = receive.NewSync(t.Context(), c.config)
			never := c.rule == receive.Secretless || c.rule == receive.NeedsURL || c.rule == receive.Incomplete
			if (err != nil) != never {
				t.Errorf("waived: %v", err)
			}
		})
	}
}

func TestInboxConfig_lint(t *testing.T) {
	c := receive.InboxConfig{Source: receivetest.NewSource(t, "ci", providers.GitHub()), Store: receivetest.NewStore(), Handler: (&counter{}).handle}
	if got := harms(c.Lint())[receive.NoRetries]; got != receive.Told {
		t.Errorf("GitHub without a fallback: %v", got)
	}
	var log bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := receive.NewInbox(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "is lost") {
		t.Errorf("start-up does not say what is lost: %s", log.String())
	}
	c.Fallback = receivetest.NewStore()
	if _, told := harms(c.Lint())[receive.NoRetries]; told {
		t.Error("told though there is a fallback")
	}
	for p := range providers.All() {
		if p.Name == "paypal" {
			continue
		}
		src := receivetest.NewSource(t, "x", p)
		src.ChallengeToken = "t"
		for _, problem := range (receive.InboxConfig{Source: src, Store: c.Store, Handler: c.Handler}).Lint() {
			if problem.Harm != receive.Told && problem.Rule != receive.NoID {
				t.Errorf("%s, as it is: %v", p.Name, problem)
			}
		}
	}
}

// Every problem comes at once, each with its remedy.
func TestConfigError_listsEverything(t *testing.T) {
	_, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: receive.Source{Provider: providers.Twilio()}, Retain: time.Nanosecond})
	config, ok := errors.AsType[*receive.ConfigError](err)
	if !ok {
		t.Fatal(err)
	}
	for _, want := range []string{"no name", "no Store", "no Handler", "no secret", "PublicURL", "Retain"} {
		if !strings.Contains(config.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, config)
		}
	}
}

// The matrix of when an event runs whose first run dies, worked out by hand from the providers'
// published waits. Repeats wait here for as long as the timeout leaves.
func TestSimulate_isTheScheduleWorkedOutByHand(t *testing.T) {
	for _, c := range []struct {
		says            string
		p               receive.Provider
		deadline, grace time.Duration
		crash           int // seconds
		want            time.Duration
		spare           int
		lost            bool
	}{
		// Lease 20.25 s. Dies at 1 s; attempt at 6 s waits 13.5 s, until 19.5 s; then 5 minutes.
		{"Svix, dies at 1 s", providers.Svix(), 12 * time.Second, 8 * time.Second, 1, 5*time.Minute + 19500*time.Millisecond, 5, false},
		// Dies at 12 s; attempt at 17 s waits for the lease's end at 20.25 s, and has 15 - 3.25 s left, not 12.
		{"Svix, dies at 12 s", providers.Svix(), 12 * time.Second, 8 * time.Second, 12, 5*time.Minute + 20250*time.Millisecond, 5, false},
		{"GitHub", providers.GitHub(), 5 * time.Second, time.Second, 1, 0, 0, true},
		// Lease 35.25 s, no attempt before it: 300 s later.
		{"Mailgun", providers.Mailgun(), 30 * time.Second, 5 * time.Second, 1, 301 * time.Second, 5, false},
		// Lease 3602.25 s: attempts at 0+60, then 3600 later.
		{"Linear, an hour", providers.Linear(), time.Hour, 2 * time.Second, 0, 3660*time.Second + 3500*time.Millisecond, 1, false},
	} {
		t.Run(c.says, func(t *testing.T) {
			for f := range receive.Simulate(c.p, c.deadline, c.grace) {
				if f.CrashAt != time.Duration(c.crash)*time.Second {
					continue
				}
				if f.RunsAt != c.want || f.Spare != c.spare || f.Lost != c.lost {
					t.Errorf("%+v, want %v with %d spare, lost %v", f, c.want, c.spare, c.lost)
				}
				return
			}
			t.Error("this second is not there")
		})
	}
}
