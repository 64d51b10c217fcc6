package oracles

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	stripe "github.com/stripe/stripe-go/v82/webhook"

	"github.com/waybill-dev/waybill/examples/billing"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/pgstore"
)

const stripeSecret = "whsec_of_the_billing_example_and_no_other"

// stripeEvent is a subscription's event, signed by Stripe's own library.
func stripeEvent(id, kind string, created int64, status string, seats int) *http.Request {
	body := fmt.Sprintf(`{"id":%q,"object":"event","type":"customer.subscription.%s","created":%d,"data":{"object":{"id":"sub_1","customer":"cus_1","status":%q,"quantity":%d}}}`,
		id, kind, created, status, seats)
	signed := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: []byte(body), Secret: stripeSecret})
	r := httptest.NewRequest(http.MethodPost, "/stripe", nil)
	return withBody(r, body, "Stripe-Signature", signed.Header)
}

// shop is the billing example on a database of its own.
type shop struct {
	t      *testing.T
	server *pgtest.Server
	pool   *pgxpool.Pool
	inbox  *receive.Inbox
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, server: pgtest.Start(t, nil)}
	var err error
	if s.pool, err = pgxpool.New(t.Context(), s.server.DSN()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	if _, err := s.pool.Exec(t.Context(), pgstore.Schema+billing.Schema); err != nil {
		t.Fatal(err)
	}
	if s.inbox, err = billing.New(t.Context(), s.pool, stripeSecret); err != nil {
		t.Fatal(err)
	}
	return s
}

// work runs the worker until the test ends.
func (s *shop) work() {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.inbox.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	// A receiver without a worker takes nothing; wait until it has one.
	s.until("the worker to start", func() bool { return s.send(stripeEvent("evt_none", "other", 1, "", 0)) == http.StatusOK })
}

func (s *shop) send(r *http.Request) int {
	w := httptest.NewRecorder()
	s.inbox.ServeHTTP(w, r)
	return w.Code
}

// deliver is Stripe, which repeats an event until it hears 2xx.
func (s *shop) deliver(event func() *http.Request) {
	s.t.Helper()
	s.until("the event to be taken", func() bool { return s.send(event()) == http.StatusOK })
}

func (s *shop) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// settled reports whether nothing is left to do.
func (s *shop) settled() bool {
	var open int
	err := s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM waybill_receive.event WHERE state <> 2").Scan(&open)
	return err == nil && open == 0
}

func (s *shop) entitlement() (active bool, seats int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), "SELECT active, seats FROM entitlement WHERE customer = 'cus_1'").Scan(&active, &seats); err != nil {
		s.t.Fatal(err)
	}
	return active, seats
}

// Whatever order the events come in, and however often, the last word stands; two of one second end
// alike in every order.
func TestBilling_outOfOrderAndTwice(t *testing.T) {
	s := newShop(t)
	s.work()
	history := []func() *http.Request{
		func() *http.Request { return stripeEvent("evt_1", "created", 100, "trialing", 1) },
		func() *http.Request { return stripeEvent("evt_2", "updated", 101, "active", 5) },
		func() *http.Request { return stripeEvent("evt_3", "updated", 101, "active", 7) },
		func() *http.Request { return stripeEvent("evt_4", "deleted", 102, "canceled", 7) },
	}
	for range 5 {
		if _, err := s.pool.Exec(t.Context(), "TRUNCATE entitlement, waybill_receive.event, waybill_receive.other_body, waybill_receive.version"); err != nil {
			t.Fatal(err)
		}
		events := append(history[:4:4], history...)
		rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, e := range events {
			s.deliver(e)
		}
		s.until("the events to be handled", s.settled)
		if active, seats := s.entitlement(); active || seats != 7 {
			t.Fatalf("active %v with %d seats; the subscription was cancelled with 7", active, seats)
		}
		var at int64
		var tie string
		if err := s.pool.QueryRow(t.Context(), "SELECT at, tie FROM waybill_receive.version WHERE object = 'subscription sub_1'").Scan(&at, &tie); err != nil || at != 102 || tie != "evt_4" {
			t.Errorf("the newest is %d %s, %v", at, tie, err)
		}
	}
}

// A run that dies is run again after its lease, and its half is not there.
func TestBilling_crash(t *testing.T) {
	s := newShop(t)
	s.work()
	// The dead process had written the event down and taken it.
	r := receive.Record{
		Key:   receive.Key{Source: "billing", ID: "evt_1"},
		Topic: "customer.subscription.created", Of: 1, IDSigned: true,
		Body: []byte(`{"id":"evt_1","created":100,"data":{"object":{"id":"sub_1","customer":"cus_1","status":"active","quantity":3}}}`),
	}
	store := pgstore.New(s.pool)
	if f, err := store.Claim(t.Context(), &r, receive.NewToken(), time.Second); err != nil || f.Claim == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := store.Put(t.Context(), []receive.Record{r}); err != nil {
		t.Fatal(err)
	}
	// Stripe's own retry meets what is written down.
	s.deliver(func() *http.Request { return stripeEvent("evt_1", "created", 100, "active", 3) })
	s.until("the event to be handled after the lease", s.settled)
	if active, seats := s.entitlement(); !active || seats != 3 {
		t.Errorf("active %v with %d seats", active, seats)
	}
	var runs int
	if err := s.pool.QueryRow(t.Context(), "SELECT run FROM waybill_receive.event").Scan(&runs); err != nil || runs != 2 {
		t.Errorf("%d runs, %v: want the one that died and the one that did not", runs, err)
	}
}

// With the database stopped Stripe is told to come back; then its retries give what it sent.
func TestBilling_storeDown(t *testing.T) {
	s := newShop(t)
	s.work()
	s.server.Stop()
	for i := range 3 {
		began := time.Now()
		if status := s.send(stripeEvent(fmt.Sprint("evt_", i), "updated", int64(100+i), "active", i)); status != http.StatusServiceUnavailable {
			t.Errorf("evt_%d: %d", i, status)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("evt_%d: answered after %v", i, took)
		}
	}
	s.server.Start()
	for i := range 3 {
		s.deliver(func() *http.Request { return stripeEvent(fmt.Sprint("evt_", i), "updated", int64(100+i), "active", i) })
	}
	s.until("the events to be handled", s.settled)
	if active, seats := s.entitlement(); !active || seats != 2 {
		t.Errorf("active %v with %d seats", active, seats)
	}
}

// What can never work is a dead letter at once, whole and to be replayed.
func TestBilling_deadLetter(t *testing.T) {
	s := newShop(t)
	s.work()
	body := `{"id":"evt_bad","type":"customer.subscription.updated","created":"yesterday"}`
	signed := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: []byte(body), Secret: stripeSecret})
	s.deliver(func() *http.Request {
		return withBody(httptest.NewRequest(http.MethodPost, "/stripe", nil), body, "Stripe-Signature", signed.Header)
	})
	var letters []receive.DeadLetter
	s.until("the dead letter", func() bool {
		letters = nil
		for l, err := range s.inbox.Dead(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			letters = append(letters, l)
		}
		return len(letters) == 1
	})
	if l := letters[0]; string(l.Record.Body) != body || l.Runs != 1 || !json.Valid(l.Record.Body) {
		t.Errorf("%+v", l)
	}
}
