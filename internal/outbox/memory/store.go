package memory

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Store implements outbox.Store as far as the package comment says.
type Store struct {
	outbox.Store // nil: what is not implemented

	mu  sync.Mutex
	now func() time.Time

	shards    map[outbox.Shard]*shard
	nodes     map[outbox.NodeID]*outbox.NodeBeat
	dispatch  outbox.DispatchState
	tenants   map[outbox.TenantID]*outbox.Tenant
	keys      map[string]outbox.TenantID
	endpoints map[outbox.EndpointID]*outbox.Endpoint
	order     map[outbox.EndpointID]*ordering
	health    map[outbox.EndpointID]outbox.EndpointHealth
	events    map[eventKey]*outbox.Event
	idem      map[idemKey]idemEntry
	lastPos   int64
	pending   map[outbox.DeliveryID]*outbox.Delivery
	of        map[outbox.EndpointID]map[outbox.DeliveryID]*outbox.Delivery // the same, by endpoint
	dead      map[outbox.DeliveryID]*letter
	tries     map[outbox.DeliveryID][]try // by attempt number, as they came
	marks     map[outbox.EndpointID]int64
	suspects  map[outbox.Suspect]int // strikes, by suspect with none
}

// shard is what is known of one.
type shard struct {
	node     outbox.NodeID
	epoch    int64
	released bool
	held     []outbox.HeldSlot
	revision int64
	rows     []*outbox.OutboxRow // by position
	counts   counts
}

type eventKey struct {
	tenant outbox.TenantID
	id     outbox.EventID
}

type idemKey struct {
	tenant outbox.TenantID
	key    string
}

type idemEntry struct {
	digest [32]byte
	event  outbox.EventID
	at     time.Time
}

// letter is a dead letter.
type letter struct {
	outbox.Delivery // as it was last pending
	info            outbox.DeadInfo
	holds           bool
}

// try is an attempt with the delivery it was of, as that was fetched.
type try struct {
	outbox.Attempt
	delivery outbox.Delivery
	n        int
	final    bool
	at       time.Time
}

// New returns an empty store that has the given shards, all where there are none given. now is the
// database's clock; nil is the wall clock.
func New(now func() time.Time, shards ...outbox.Shard) *Store {
	if now == nil {
		now = time.Now
	}
	s := &Store{
		now:       now,
		shards:    map[outbox.Shard]*shard{},
		nodes:     map[outbox.NodeID]*outbox.NodeBeat{},
		tenants:   map[outbox.TenantID]*outbox.Tenant{},
		keys:      map[string]outbox.TenantID{},
		endpoints: map[outbox.EndpointID]*outbox.Endpoint{},
		order:     map[outbox.EndpointID]*ordering{},
		health:    map[outbox.EndpointID]outbox.EndpointHealth{},
		events:    map[eventKey]*outbox.Event{},
		idem:      map[idemKey]idemEntry{},
		pending:   map[outbox.DeliveryID]*outbox.Delivery{},
		of:        map[outbox.EndpointID]map[outbox.DeliveryID]*outbox.Delivery{},
		dead:      map[outbox.DeliveryID]*letter{},
		tries:     map[outbox.DeliveryID][]try{},
		marks:     map[outbox.EndpointID]int64{},
		suspects:  map[outbox.Suspect]int{},
	}
	if len(shards) == 0 {
		for i := range outbox.Shards {
			shards = append(shards, outbox.Shard(i))
		}
	}
	for _, id := range shards {
		s.shards[id] = &shard{released: true, counts: newCounts()}
	}
	return s
}

// clock is the database's time.
func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// Close implements outbox.Store.
func (s *Store) Close() error { return nil }

// By implements outbox.Audit; nothing is put on record here.
func (s *Store) By(*outbox.Author) outbox.Store { return s }

// locked begins a transaction; the caller ends it. One whose caller has given up does not begin.
func (s *Store) locked(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &outbox.WriteError{Fault: outbox.FaultRetry, Err: err}
	}
	s.mu.Lock()
	return nil
}

// fence makes sure that the lease still holds for the shards.
func (s *Store) fence(lease outbox.Lease, shards ...outbox.Shard) error {
	for _, id := range shards {
		epoch, ok := lease.Epochs[id]
		if at := s.shards[id]; !ok || at == nil || at.node != lease.Node || at.epoch != epoch {
			return outbox.ErrFenced
		}
	}
	return nil
}

// changed bumps the revision of a shard's configuration.
func (s *Store) changed(id outbox.Shard) { s.shards[id].revision++ }

func compareIDs[I ~[16]byte](a, b I) int { return bytes.Compare(a[:], b[:]) }

// truncate is a time as the real stores keep it.
func truncate(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
