// Package memstore keeps claims in this process's memory: for a fallback, and for one process that
// may repeat itself after a restart. It serves Sync only. Tests want receivetest.NewStore.
package memstore

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/row"
)

// New keeps that many events at most; at least 1. The finished go first, oldest first, then those whose
// lease is over. If all are being handled there is no room: a claim is an error then, because one
// that forgot a live run would let a twin in.
func New(most int) *Store {
	return &Store{most: max(most, 1), now: time.Now, rows: map[[32]byte]*entry{}, order: list.New()}
}

// Store is a receive.ClaimStore.
type Store struct {
	most int
	now  func() time.Time

	mu    sync.Mutex
	rows  map[[32]byte]*entry
	order *list.List // of [32]byte, first touched first
}

type entry struct {
	row.Row
	place *list.Element
}

// Claim is receive.ClaimStore's.
func (s *Store) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	if err := ctx.Err(); err != nil {
		return receive.Found{}, err
	}
	hash := r.Key.Hash()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.rows[hash]
	if e == nil {
		if len(s.rows) >= s.most && !s.evict(now) {
			return receive.Found{}, fmt.Errorf("memstore: all %d events it may keep are being handled", s.most)
		}
		e = &entry{place: s.order.PushBack(hash)}
		s.rows[hash] = e
	}
	return e.Claim(now, r, token, lease), nil
}

// Settle is receive.ClaimStore's.
func (s *Store) Settle(_ context.Context, c *receive.Claim, o receive.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.rows[c.Key.Hash()]
	if e == nil {
		return receive.ErrLeaseLost
	}
	return e.Settle(s.now(), c, o)
}

// evict removes the oldest event that nobody is handling.
func (s *Store) evict(now time.Time) bool {
	for _, done := range []bool{true, false} {
		for place := s.order.Front(); place != nil; place = place.Next() {
			hash := place.Value.([32]byte)
			e := s.rows[hash]
			idle := e.State != receive.Held || !now.Before(e.Until)
			if idle && (!done || e.State == receive.Done) {
				s.order.Remove(place)
				delete(s.rows, hash)
				return true
			}
		}
	}
	return false
}

// Check says what memory is.
func (s *Store) Check(context.Context) ([]receive.Problem, error) {
	return []receive.Problem{{
		Rule: receive.Forgets, Harm: receive.Repeats,
		Detail: "memstore forgets at a restart and is seen by one process only, so an event may run again",
		Remedy: "use redisstore, pgstore or sqlstore, or waive the rule if repeats do no harm",
	}}, nil
}

var (
	_ receive.ClaimStore = (*Store)(nil)
	_ receive.Checker    = (*Store)(nil)
)
