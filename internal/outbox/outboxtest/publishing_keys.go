package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var publishingKeys = topic{"publishing with idempotency keys", []promise{
	{"a key with the same type and payload meets the first event", keyMeetsTheFirst},
	{"a key with another type or payload is a conflict", keyMismatch},
	{"a key belongs to its tenant", keysBelongToTheirTenant},
	{"a key twice in one batch is a duplicate or a conflict", keyTwiceInOneBatch},
	{"keys are bytes, compared exactly", keysAreExact},
	{"a key and a chosen id are both looked at", keyAndChosenID},
	{"a key that was given to a chosen id says so the next time", keyOfChosenID},
	{"a key is free again when its retention is over", keyOutlivesRetention},
	{"an event and another request do not share a key", keyOfAnotherRequest},
	{"many publishers with the same keys in opposite orders do not deadlock", crossedKeys},
	{"of many publishers with one key one event is stored", oneKeyManyPublishers},
}}

func (w *world) keyed(tenant outbox.Tenant, key, payload string) outbox.NewEvent {
	e := w.event(tenant, "a.b", payload)
	e.IdempotencyKey = key
	return e
}

func keyMeetsTheFirst(w *world) {
	acme := w.tenant("acme")
	first := w.keyed(acme, "k", `{"n":1}`)
	w.publish(first)
	w.now = w.now.Add(time.Minute)
	again := w.keyed(acme, "k", `{"n":1}`)
	want := []outbox.Accepted{{ID: first.ID, CreatedAt: first.CreatedAt, Duplicate: true, Again: true}}
	w.equal("answer", w.publish(again), want)
	// Ordering key and metadata are not part of what a key is bound to.
	again = w.keyed(acme, "k", `{"n":1}`)
	again.OrderingKey, again.Metadata = "o", map[string]string{"a": "b"}
	w.equal("answer", w.publish(again), want)
	w.waiting(1)

	w.endpoint(acme, "*")
	w.finish(w.delivered(w.route()[0]))
	w.equal("answer after delivery", w.publish(w.keyed(acme, "k", `{"n":1}`)), want)
	w.waiting(0)
}

func keyMismatch(w *world) {
	acme := w.tenant("acme")
	w.publish(w.keyed(acme, "k", `{"n":1}`))
	w.conflicts("other payload", []outbox.NewEvent{w.keyed(acme, "k", `{"n": 1}`)}, 0, outbox.ErrIdempotencyMismatch)
	other := w.keyed(acme, "k", `{"n":1}`)
	other.Type = "a.c"
	w.conflicts("other type", []outbox.NewEvent{other}, 0, outbox.ErrIdempotencyMismatch)
	w.waiting(1)
}

func keysBelongToTheirTenant(w *world) {
	acme, globex := w.neighbours("acme")
	first := w.keyed(acme, "k", `{"n":1}`)
	other := w.keyed(globex, "k", `{"n":2}`)
	w.publish(first)
	if got := w.publish(other)[0]; got.Duplicate || got.ID != other.ID {
		w.Errorf("another tenant's key was met: %+v", got)
	}
	w.waiting(2)
}

func keyTwiceInOneBatch(w *world) {
	acme := w.tenant("acme")
	first, second := w.keyed(acme, "k", `{"n":1}`), w.keyed(acme, "k", `{"n":1}`)
	accepted := w.publish(first, second)
	if accepted[0].Duplicate || !accepted[1].Duplicate || accepted[1].ID != first.ID {
		w.Errorf("answers %+v, want the second to be a duplicate of the first", accepted)
	}
	w.waiting(1)
	if _, err := w.store.Event(w.ctx, acme.TenantRef, second.ID); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("the duplicate was stored: %v", err)
	}

	w.conflicts("two payloads under one key", []outbox.NewEvent{w.keyed(acme, "l", `1`), w.keyed(acme, "l", `2`)}, 1, outbox.ErrIdempotencyMismatch)
	w.waiting(1)
}

func keysAreExact(w *world) {
	acme := w.tenant("acme")
	for _, key := range []string{"k", "K", " k", "k ", "ｋ", "k%", "k_", "'", `"`, `\`} {
		if w.publish(w.keyed(acme, key, fmt.Sprintf("%q", key)))[0].Duplicate {
			w.Errorf("key %q met another one", key)
		}
	}
}

func keyAndChosenID(w *world) {
	acme := w.tenant("acme")
	first := w.keyed(acme, "k", `{"n":1}`)
	first.Chosen = true
	w.publish(first)

	// The same key with another chosen id is the first event again: that is what a key is for.
	second := w.keyed(acme, "k", `{"n":1}`)
	second.Chosen = true
	w.equal("answer", w.publish(second), []outbox.Accepted{{ID: first.ID, CreatedAt: first.CreatedAt, Duplicate: true, Again: true}})

	// A new key with an id that exists with other content cannot be stored, and is not taken.
	third := w.keyed(acme, "l", `{"n":3}`)
	third.ID, third.Chosen = first.ID, true
	w.conflicts("a new key, a used id", []outbox.NewEvent{third}, 0, outbox.ErrIDConflict)
	if w.publish(w.keyed(acme, "l", `{"n":4}`))[0].Duplicate {
		w.Error("the key of a refused event is taken")
	}
	w.waiting(2)
}

// later is the same request again, at a later moment.
func (w *world) later(e outbox.NewEvent) outbox.NewEvent {
	w.now = w.now.Add(time.Minute)
	e.CreatedAt = w.now
	return e
}

func keyOfChosenID(w *world) {
	acme := w.tenant("acme")
	both := w.keyed(acme, "k", `{"n":1}`)
	both.Chosen = true
	w.publish(both)
	w.equal("key and id again", w.publish(w.later(both)), []outbox.Accepted{{ID: both.ID, CreatedAt: both.CreatedAt, Duplicate: true, Again: true}})

	plain := w.event(acme, "a.b", `{"n":2}`)
	plain.Chosen = true
	w.publish(plain)
	named := w.later(plain)
	named.IdempotencyKey = "l"
	w.equal("the first use of a key, for an event that exists", w.publish(named), []outbox.Accepted{{ID: plain.ID, CreatedAt: plain.CreatedAt, Duplicate: true}})
	if got := w.publish(w.later(named))[0]; got.ID != plain.ID || !got.Again {
		w.Errorf("the second use of it: %+v", got)
	}
}

func keyOutlivesRetention(w *world) {
	acme := w.tenant("acme")
	w.must(w.store.WriteSettings(w.ctx, outbox.Settings{MaxPayload: 1 << 18, Retention: 30 * 24 * time.Hour, IdempotencyRetention: time.Hour}))
	first := w.keyed(acme, "k", `{"n":1}`)
	w.publish(first)
	w.begin(acme.TenantRef, "request", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.EndIdempotent(w.ctx, acme.TenantRef, "request", []byte("answer")))
	w.now = w.now.Add(time.Hour)
	if got := w.publish(w.keyed(acme, "k", `{"n":1}`))[0]; got.ID != first.ID {
		w.Errorf("at the end of the hour the key names %s, want the first event", got.ID)
	}
	w.begin(acme.TenantRef, "request", oneRequest, outbox.IdempotencyDone, "answer")
	w.now = w.now.Add(time.Second)
	second := w.keyed(acme, "k", `{"n":2}`)
	w.equal("a new event", w.publish(second)[0].Duplicate, false)
	w.now = w.now.Add(time.Minute)
	w.equal("the key's event", w.publish(w.keyed(acme, "k", `{"n":2}`))[0].ID, second.ID)
	w.begin(acme.TenantRef, "request", otherRequest, outbox.IdempotencyNew, "")
}

func keyOfAnotherRequest(w *world) {
	acme, globex := w.neighbours("acme")
	w.publish(w.keyed(acme, "event", `1`))
	w.begin(acme.TenantRef, "event", oneRequest, outbox.IdempotencyMismatch, "")
	w.begin(acme.TenantRef, "request", oneRequest, outbox.IdempotencyNew, "")
	for _, state := range []string{"running", "done"} {
		w.conflicts(state, []outbox.NewEvent{w.keyed(acme, "request", `1`)}, 0, outbox.ErrIdempotencyMismatch)
		w.must(w.store.EndIdempotent(w.ctx, acme.TenantRef, "request", []byte("answer")))
	}
	w.begin(acme.TenantRef, "request", oneRequest, outbox.IdempotencyDone, "answer")
	w.publish(w.keyed(globex, "request", `1`)) // another tenant's is another key
	w.begin(outbox.TenantRef{}, "event", oneRequest, outbox.IdempotencyNew, "")
	w.waiting(2)
}

// persist publishes a batch as a publisher does: a batch that waited too long for a key, or was
// put off by the database, is sent again.
func (w *world) persist(batch []outbox.NewEvent) ([]outbox.Accepted, error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		accepted, conflicts, err := w.store.InsertEvents(w.ctx, batch)
		switch fault := outbox.FaultOf(err); {
		case err == nil && len(conflicts) > 0:
			return nil, fmt.Errorf("conflicts: %v", conflicts)
		case err == nil:
			return accepted, nil
		case fault != outbox.FaultLocked && fault != outbox.FaultRetry, time.Now().After(deadline):
			return nil, err
		}
	}
}

func crossedKeys(w *world) {
	acme := w.tenant("acme")
	const publishers, keys = 8, 20
	var group sync.WaitGroup
	answers := make([][]outbox.Accepted, publishers)
	errs := make([]error, publishers)
	for p := range publishers {
		var batch []outbox.NewEvent
		for k := range keys {
			batch = append(batch, w.keyed(acme, fmt.Sprintf("key-%02d", k), `{"same":true}`))
		}
		if p%2 == 1 {
			slices.Reverse(batch)
		}
		group.Go(func() {
			answers[p], errs[p] = w.persist(batch)
			if p%2 == 1 {
				slices.Reverse(answers[p])
			}
		})
	}
	group.Wait()
	w.must(errors.Join(errs...))
	originals := 0
	for _, answer := range answers {
		for k, a := range answer {
			if a.ID != answers[0][k].ID {
				w.Errorf("key %d names two events", k)
			}
			if !a.Duplicate {
				originals++
			}
		}
	}
	if originals != keys {
		w.Errorf("%d events were the first of their key, want %d", originals, keys)
	}
	w.waiting(keys)
	w.verify()
}

func oneKeyManyPublishers(w *world) {
	acme := w.tenant("acme")
	const publishers = 16
	var group sync.WaitGroup
	answers := make([][]outbox.Accepted, publishers)
	errs := make([]error, publishers)
	for p := range publishers {
		batch := []outbox.NewEvent{w.keyed(acme, "k", `{"same":true}`)}
		group.Go(func() { answers[p], errs[p] = w.persist(batch) })
	}
	group.Wait()
	w.must(errors.Join(errs...))
	originals := 0
	for _, answer := range answers {
		if !answer[0].Duplicate {
			originals++
		}
		if answer[0].ID != answers[0][0].ID {
			w.Error("the key names two events")
		}
	}
	if originals != 1 {
		w.Errorf("%d publishers were first", originals)
	}
	w.waiting(1)
}
