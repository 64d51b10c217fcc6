package outboxtest

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// RunResealing proves that sealing again leaves everything readable with the new key alone, and
// may be interrupted. open opens the same database each time.
func RunResealing(t *testing.T, open func(t *testing.T, keys *keyring.Keyring) outbox.Store) {
	ring := func(keys ...[]byte) *keyring.Keyring {
		t.Helper()
		r, err := keyring.New(keys[0], keys[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second, lost := keyring.NewKey(), keyring.NewKey(), keyring.NewKey()

	// Under the first key: seven endpoints, of which one holds nothing sealed, and two answers.
	w := newWorld(t, open(t, ring(first)))
	acme := w.tenant("acme")
	var made []outbox.Endpoint
	for i := range 7 {
		made = append(made, w.endpointWith(acme, func(e *outbox.Endpoint) {
			e.Headers = map[string]string{"X-N": fmt.Sprint(i)}
			e.Credentials.Headers = map[string]string{"Authorization": fmt.Sprint("Bearer ", i)}
			if i == 3 {
				e.Headers, e.Secrets, e.Credentials = nil, nil, outbox.Credentials{}
			}
		}))
	}
	_, _, err := w.store.PutSource(w.ctx, "stripe", w.now, func(s *outbox.Source, _ bool) error {
		s.Provider, s.Tenant = "stripe", acme.TenantRef
		s.Secrets = []outbox.SourceSecret{{Value: "whsec_of_a_source", CreatedAt: w.now}}
		return nil
	})
	w.must(err)
	for _, scope := range []outbox.TenantRef{acme.TenantRef, {}} {
		w.begin(scope, "k", oneRequest, outbox.IdempotencyNew, "")
		w.must(w.store.EndIdempotent(w.ctx, scope, "k", []byte("answer")))
	}
	// And one endpoint that neither of the keys opens.
	stranger := newWorld(t, open(t, ring(lost)))
	stranger.endpoint(acme, "*")

	// Two rows at a time, dying after the second step, and begun anew.
	w.store = open(t, ring(second, first))
	var at outbox.ResealAt
	values := 0
	for range 2 {
		done, err := w.store.Reseal(w.ctx, at, 2)
		w.must(err)
		values, at = values+done.Values, done.Next
	}
	broken := 0
	for at = (outbox.ResealAt{}); at.Part != outbox.ResealDone; {
		done, err := w.store.Reseal(w.ctx, at, 2)
		w.must(err)
		values, broken, at = values+done.Values, broken+done.Broken, done.Next
	}
	if want := 6*3 + 1 + 2; values != want || broken != 1 {
		w.Fatalf("%d values were sealed again and %d not opened, want %d and 1", values, broken, want)
	}

	w.store = open(t, ring(second))
	for _, want := range made {
		got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: want.ID})
		w.must(err)
		want.UpdatedAt, got.UpdatedAt = w.now, w.now
		w.equal("the endpoint under the new key alone", got, want)
	}
	source, err := w.store.Source(w.ctx, "stripe")
	w.must(err)
	if len(source.Secrets) != 1 || source.Secrets[0].Value != "whsec_of_a_source" {
		w.Fatal("the source's secret does not open under the new key alone")
	}
	for _, scope := range []outbox.TenantRef{acme.TenantRef, {}} {
		w.begin(scope, "k", oneRequest, outbox.IdempotencyDone, "answer")
	}
	done, err := w.store.Reseal(w.ctx, outbox.ResealAt{}, 100)
	w.must(err)
	if done.Values != 0 || done.Next.Part != outbox.ResealSources {
		w.Fatalf("once more: %+v", done)
	}
}
