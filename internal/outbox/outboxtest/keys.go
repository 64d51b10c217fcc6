package outboxtest

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

var encryptionKeys = topic{"encryption keys", []promise{
	{"a mark is kept, and shown to whoever starts next", markKept},
	{"an error of the decision is returned and leaves no mark", markRefused},
	{"what begins sealed values is shown once, of living endpoints alone", sealedBeginnings},
	{"servers that start at once take turns", marksTakeTurns},
	{"no server starts with another key", anotherKey},
}}

// admitted runs one start that adds mark, and returns what it was shown.
func (w *world) admitted(mark []byte) (marks, stored [][]byte) {
	w.Helper()
	w.must(w.store.AdmitKeys(w.ctx, func(m, s [][]byte) ([]byte, error) {
		marks, stored = m, s
		return mark, nil
	}))
	slices.SortFunc(marks, bytes.Compare)
	return marks, stored
}

func markKept(w *world) {
	one, two := []byte("mark one"), []byte("mark two")
	marks, stored := w.admitted(one)
	if len(marks) != 0 || len(stored) != 0 {
		w.Errorf("a new database holds the marks %q and %x", marks, stored)
	}
	marks, _ = w.admitted(nil)
	w.equal("marks", marks, [][]byte{one})
	w.admitted(two)
	marks, _ = w.admitted(nil)
	w.equal("marks", marks, [][]byte{one, two})
}

func markRefused(w *world) {
	refusal := errors.New("refused")
	err := w.store.AdmitKeys(w.ctx, func(_, _ [][]byte) ([]byte, error) { return []byte("a mark"), refusal })
	if !errors.Is(err, refusal) {
		w.Errorf("%v, want the decision's own error", err)
	}
	if marks, _ := w.admitted(nil); len(marks) != 0 {
		w.Errorf("marks %q", marks)
	}
}

func sealedBeginnings(w *world) {
	acme := w.tenant("acme")
	for range 2 {
		w.endpointWith(acme, func(e *outbox.Endpoint) { e.Headers = map[string]string{"X-Token": "token"} })
	}
	_, stored := w.admitted(nil)
	if len(stored) != 1 || len(stored[0]) != keyring.HeaderSize {
		w.Fatalf("%x, want the beginning of what one key sealed", stored)
	}
	broken := w.endpointWith(acme, func(e *outbox.Endpoint) { e.Description = "broken" })
	w.must(w.backdoor().Exec(w.ctx, `UPDATE {endpoint} SET secrets = {garbage} WHERE description = 'broken'`))
	_, both := w.admitted(nil)
	if len(both) != 2 || !slices.ContainsFunc(both, func(b []byte) bool { return bytes.Equal(b, stored[0]) }) {
		w.Errorf("%x, want %x and the damaged one", both, stored[0])
	}
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: broken.ID}, w.now, 1)
	w.must(err)
	_, stored = w.admitted(nil)
	w.equal("beginnings once it is deleted", len(stored), 1)
}

// Two servers that were given different keys must not both believe to be the first.
func marksTakeTurns(w *world) {
	const servers = 4
	var first sync.Map
	var all sync.WaitGroup
	for i := range servers {
		all.Go(func() {
			err := w.store.AdmitKeys(w.ctx, func(marks, _ [][]byte) ([]byte, error) {
				if len(marks) == 0 {
					first.Store(i, true)
				}
				return []byte{'m', 'a', 'r', 'k', byte('0' + i)}, nil
			})
			if err != nil {
				w.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	first.Range(func(_, _ any) bool { n++; return true })
	w.equal("servers that were the first", n, 1)
	marks, _ := w.admitted(nil)
	w.equal("marks", len(marks), servers)
}

// The whole decision, as a server makes it.
func anotherKey(w *world) {
	ring := func(current []byte, old ...[]byte) *keyring.Keyring {
		k, err := keyring.New(current, old...)
		w.must(err)
		return k
	}
	a, b := keyring.NewKey(), keyring.NewKey()
	w.must(w.store.AdmitKeys(w.ctx, ring(a).Admit))
	w.must(w.store.AdmitKeys(w.ctx, ring(a).Admit))
	if err := w.store.AdmitKeys(w.ctx, ring(b).Admit); !errors.Is(err, keyring.ErrWrongKey) {
		w.Errorf("another key: %v", err)
	}
	w.must(w.store.AdmitKeys(w.ctx, ring(b, a).Admit))
	w.must(w.store.AdmitKeys(w.ctx, ring(b).Admit)) // nothing is sealed with the old one
	marks, _ := w.admitted(nil)
	w.equal("marks", len(marks), 2)
}
