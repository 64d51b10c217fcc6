package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// fakeStore keeps events in memory by the rules of outbox.Publishing. before, if set, is asked
// ahead of every call and can fail it, with or without the write being applied.
type fakeStore struct {
	mu     sync.Mutex
	before func(call int, batch []outbox.NewEvent) (apply bool, err error)
	calls  [][]outbox.NewEvent
	pos    int64
	byID   map[outbox.EventID]outbox.NewEvent
	byKey  map[string]outbox.NewEvent
	stored []outbox.EventID // one entry for each outbox row
	delay  time.Duration
	slow   func(batch []outbox.NewEvent) time.Duration // instead of delay, if set
}

func newFakeStore() *fakeStore {
	return &fakeStore{byID: map[outbox.EventID]outbox.NewEvent{}, byKey: map[string]outbox.NewEvent{}}
}

func storeKey(e *outbox.NewEvent) string { return fmt.Sprintf("%d/%s", e.Tenant.ID, e.IdempotencyKey) }

func (f *fakeStore) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	delay := f.delay
	if f.slow != nil {
		delay = f.slow(batch)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, nil, &outbox.WriteError{Fault: outbox.FaultRetry, Err: ctx.Err()}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, &outbox.WriteError{Fault: outbox.FaultRetry, Err: err}
	}
	f.calls = append(f.calls, batch)
	apply, failure := true, error(nil)
	if f.before != nil {
		apply, failure = f.before(len(f.calls), batch)
	}
	if !apply {
		return nil, nil, failure
	}
	accepted, conflicts := f.insert(batch)
	if failure != nil {
		return nil, nil, failure
	}
	return accepted, conflicts, nil
}

func (f *fakeStore) insert(batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict) {
	var conflicts []outbox.Conflict
	accepted := make([]outbox.Accepted, len(batch))
	for i := range batch {
		e := &batch[i]
		first, known := f.byID[e.ID]
		if known && first.Digest() != e.Digest() {
			conflicts = append(conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIDConflict})
			continue
		}
		if e.IdempotencyKey != "" {
			if other, met := f.byKey[storeKey(e)]; met {
				if other.Digest() != e.Digest() {
					conflicts = append(conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIdempotencyMismatch})
					continue
				}
				first, known = other, true
			}
		}
		if known {
			accepted[i] = outbox.Accepted{ID: first.ID, CreatedAt: first.CreatedAt, Duplicate: true}
		}
	}
	if len(conflicts) > 0 {
		return nil, conflicts
	}
	for i := range batch {
		e := batch[i]
		if accepted[i].Duplicate {
			continue
		}
		f.pos++
		f.byID[e.ID] = e
		if e.IdempotencyKey != "" {
			f.byKey[storeKey(&e)] = e
		}
		f.stored = append(f.stored, e.ID)
		accepted[i] = outbox.Accepted{ID: e.ID, CreatedAt: e.CreatedAt, Pos: f.pos}
	}
	return accepted, nil
}

func (f *fakeStore) rowsOf(id outbox.EventID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, other := range f.stored {
		if other == id {
			n++
		}
	}
	return n
}

func (f *fakeStore) sizes() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sizes []int
	for _, batch := range f.calls {
		sizes = append(sizes, len(batch))
	}
	return sizes
}

func event(payload string) outbox.NewEvent {
	now := time.Now().UTC()
	e := outbox.NewEvent{Event: outbox.Event{
		ID: outbox.NewEventID(now), Tenant: outbox.TenantRef{ID: 1}, Type: "a.b",
		Payload: []byte(payload), CreatedAt: now,
	}}
	e.SHA256[0] = byte(len(payload)) // stands for the digest: tests use payloads of different length
	return e
}

func fault(f outbox.Fault) error { return &outbox.WriteError{Fault: f, Err: errors.New("injected")} }
