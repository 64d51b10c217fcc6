package receive_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// seen collects what a receiver observes.
type seen struct {
	mu  sync.Mutex
	all []receive.Observation
}

func (s *seen) observe(_ context.Context, o receive.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
}

// count is how many observations have the outcome.
func (s *seen) count(outcome string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome {
			n++
		}
	}
	return n
}

// events is how many observations of single events have the outcome.
func (s *seen) events(outcome string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome && o.Key != (receive.Key{}) {
			n++
		}
	}
	return n
}

// last is the last observation with the outcome.
func (s *seen) last(outcome string) (last receive.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome {
			last = o
		}
	}
	return last
}

// svixSync is a Sync in front of Svix with a deadline of 12 s and so, with 7.75 s of grace, a lease
// of 20 s.
func svixSync(t testing.TB, store receive.ClaimStore, h receive.Handler, change ...func(*receive.SyncConfig)) (*receive.Sync, receive.Source, *seen) {
	t.Helper()
	src := receivetest.NewSource(t, "mail", providers.Svix())
	obs := &seen{}
	cfg := receive.SyncConfig{
		Source: src, Store: store, Handler: h, Deadline: 12 * time.Second, Grace: 7750 * time.Millisecond, Wait: -1,
		Observe: obs.observe, Waive: []receive.Rule{receive.Forgets},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := receive.NewSync(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, cfg.Source, obs
}

func stripeInbox(t testing.TB, store receive.InboxStore, h receive.Handler, change ...func(*receive.InboxConfig)) (*receive.Inbox, receive.Source, *seen) {
	t.Helper()
	src := receivetest.NewSource(t, "billing", providers.Stripe())
	obs := &seen{}
	cfg := receive.InboxConfig{Source: src, Store: store, Handler: h, RunElsewhere: true, Observe: obs.observe}
	for _, c := range change {
		c(&cfg)
	}
	in, err := receive.NewInbox(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in, cfg.Source, obs
}

// wantStatus posts body and compares the answer's status.
func wantStatus(t testing.TB, h http.Handler, src receive.Source, body string, want int) *http.Response {
	t.Helper()
	res := receivetest.Post(t, h, src, body)
	if res.StatusCode != want {
		t.Errorf("at this point %s is answered %d, want %d", body, res.StatusCode, want)
	}
	return res
}

func wantCount(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// counter is a handler that counts its effects.
type counter struct {
	n   atomic.Int64
	err error
}

func (c *counter) handle(context.Context, *receive.Delivery) error {
	if c.err != nil {
		return c.err
	}
	c.n.Add(1)
	return nil
}

func (c *counter) effects() int { return int(c.n.Load()) }

const event = `{"id":"evt_1","type":"invoice.paid"}`

func wantRule(t testing.TB, err error, want receive.Rule) {
	t.Helper()
	config, ok := errors.AsType[*receive.ConfigError](err)
	if !ok {
		t.Errorf("started, or failed otherwise: %v", err)
		return
	}
	for _, p := range config.Problems {
		if p.Rule == want {
			return
		}
	}
	t.Errorf("the problems are %v, want %s", config.Problems, want)
}
