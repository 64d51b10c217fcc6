package outboxtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var idempotency = topic{"idempotent requests", []promise{
	{"the first runs, the second waits, the third gets the answer", idempotentLife},
	{"a key with another request is a mismatch", idempotentMismatch},
	{"a dropped claim can be made again", idempotentDrop},
	{"a claim whose process died is taken over after a minute", idempotentTakeover},
	{"a finished request stays finished", idempotentStays},
	{"scopes do not see each other", idempotentScopes},
	{"of many equal requests one runs", idempotentRace},
	{"answers are not stored in clear", idempotentSealed},
}}

var (
	oneRequest   = sha256.Sum256([]byte("one request"))
	otherRequest = sha256.Sum256([]byte("another request"))
)

func (w *world) begin(scope outbox.TenantRef, key string, digest [32]byte, want outbox.IdempotencyState, wantAnswer string) {
	w.Helper()
	state, answer, err := w.store.BeginIdempotent(w.ctx, scope, key, digest, w.now)
	w.must(err)
	if state != want || string(answer) != wantAnswer {
		w.Fatalf("state %d with answer %q, want %d with %q", state, answer, want, wantAnswer)
	}
}

func idempotentLife(w *world) {
	acme := w.tenant("acme").TenantRef
	const answer = "201\x00{\"secret\":\"\xff\"}"
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.begin(acme, "k", oneRequest, outbox.IdempotencyRunning, "")
	w.must(w.store.EndIdempotent(w.ctx, acme, "k", []byte(answer)))
	w.begin(acme, "k", oneRequest, outbox.IdempotencyDone, answer)
	w.begin(acme, "k", oneRequest, outbox.IdempotencyDone, answer)
	w.begin(acme, "K", oneRequest, outbox.IdempotencyNew, "")
}

func idempotentMismatch(w *world) {
	acme := w.tenant("acme").TenantRef
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.EndIdempotent(w.ctx, acme, "k", []byte("answer")))
	w.begin(acme, "k", otherRequest, outbox.IdempotencyMismatch, "")
	w.begin(acme, "k", oneRequest, outbox.IdempotencyDone, "answer")
}

func idempotentDrop(w *world) {
	acme := w.tenant("acme").TenantRef
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.DropIdempotent(w.ctx, acme, "k"))
	w.begin(acme, "k", otherRequest, outbox.IdempotencyNew, "")
	w.must(w.store.DropIdempotent(w.ctx, acme, "k"))
	w.must(w.store.DropIdempotent(w.ctx, acme, "k"))
	w.must(w.store.DropIdempotent(w.ctx, acme, "never used"))
}

func idempotentTakeover(w *world) {
	acme := w.tenant("acme").TenantRef
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.now = w.now.Add(59 * time.Second)
	w.begin(acme, "k", oneRequest, outbox.IdempotencyRunning, "")
	w.now = w.now.Add(2 * time.Second)
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.now = w.now.Add(59 * time.Second) // counted from the takeover
	w.begin(acme, "k", oneRequest, outbox.IdempotencyRunning, "")
}

func idempotentStays(w *world) {
	acme := w.tenant("acme").TenantRef
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.EndIdempotent(w.ctx, acme, "k", nil))
	w.now = w.now.Add(time.Hour)
	w.begin(acme, "k", oneRequest, outbox.IdempotencyDone, "")
}

func idempotentScopes(w *world) {
	one, two := w.neighbours("acme")
	scopes := []outbox.TenantRef{one.TenantRef, two.TenantRef, {}}
	for _, scope := range scopes {
		w.begin(scope, "k", oneRequest, outbox.IdempotencyNew, "")
	}
	w.must(w.store.EndIdempotent(w.ctx, one.TenantRef, "k", []byte("one's")))
	w.must(w.store.EndIdempotent(w.ctx, outbox.TenantRef{}, "k", []byte("operator's")))
	w.begin(one.TenantRef, "k", oneRequest, outbox.IdempotencyDone, "one's")
	w.begin(two.TenantRef, "k", oneRequest, outbox.IdempotencyRunning, "")
	w.begin(outbox.TenantRef{}, "k", oneRequest, outbox.IdempotencyDone, "operator's")
	w.must(w.store.DropIdempotent(w.ctx, two.TenantRef, "k"))
	w.begin(one.TenantRef, "k", oneRequest, outbox.IdempotencyDone, "one's")
}

func idempotentRace(w *world) {
	acme := w.tenant("acme").TenantRef
	const requests = 16
	var group sync.WaitGroup
	states := make([]outbox.IdempotencyState, requests)
	errs := make([]error, requests)
	for i := range requests {
		group.Go(func() {
			states[i], _, errs[i] = w.store.BeginIdempotent(w.ctx, acme, "k", oneRequest, w.now)
		})
	}
	group.Wait()
	w.must(errors.Join(errs...))
	first := 0
	for _, state := range states {
		switch state {
		case outbox.IdempotencyNew:
			first++
		case outbox.IdempotencyRunning:
		default:
			w.Errorf("state %d", state)
		}
	}
	if first != 1 {
		w.Errorf("%d requests would run, want 1", first)
	}
}

func idempotentSealed(w *world) {
	door := w.backdoor()
	acme := w.tenant("acme").TenantRef
	const secret = "the-secret-in-the-answer-of-a-rotation"
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.EndIdempotent(w.ctx, acme, "k", []byte(secret)))
	dump, err := door.Dump(w.ctx)
	w.must(err)
	if !bytes.Contains(dump, []byte("acme")) {
		w.Fatal("the dump does not even hold the tenant's key; it proves nothing")
	}
	if bytes.Contains(dump, []byte(secret)) {
		w.Error("the answer lies in the database in clear")
	}
}
