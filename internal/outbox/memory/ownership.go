package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Join implements outbox.Ownership.
func (s *Store) Join(ctx context.Context, node outbox.NodeID, now time.Time) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.nodes[node] == nil {
		s.nodes[node] = &outbox.NodeBeat{Node: node, StartedAt: truncate(now)}
	}
	return nil
}

// Leave implements outbox.Ownership.
func (s *Store) Leave(ctx context.Context, node outbox.NodeID) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.nodes, node)
	return nil
}

// Beat implements outbox.Ownership.
func (s *Store) Beat(ctx context.Context, node outbox.NodeID, draining bool) (outbox.Beat, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Beat{}, err
	}
	defer s.mu.Unlock()
	now := s.clock()
	n := s.nodes[node]
	if n == nil {
		n = &outbox.NodeBeat{Node: node, StartedAt: now}
		s.nodes[node] = n
	}
	n.Beat++
	n.Draining = draining
	b := outbox.Beat{Now: now, Dispatch: s.dispatch, Revisions: make(map[outbox.Shard]int64, len(s.shards))}
	for _, n := range s.nodes {
		b.Nodes = append(b.Nodes, *n)
	}
	slices.SortFunc(b.Nodes, func(a, b outbox.NodeBeat) int { return compareIDs(a.Node, b.Node) })
	for id, at := range s.shards {
		b.Revisions[id] = at.revision
		b.Shards = append(b.Shards, outbox.ShardState{Shard: id, Node: at.node, Epoch: at.epoch, Released: at.released})
	}
	slices.SortFunc(b.Shards, func(a, b outbox.ShardState) int { return cmp.Compare(a.Shard, b.Shard) })
	b.NoteOwners()
	return b, nil
}

// Take implements outbox.Ownership. What an earlier run of this call took, whose answer was lost, is
// taken again with the slots in flight, which stay until the next Release for that; from an owner
// that died nobody takes them over.
func (s *Store) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Lease{}, nil, err
	}
	defer s.mu.Unlock()
	lease := outbox.Lease{Node: node, Epochs: map[outbox.Shard]int64{}}
	held := map[outbox.Shard][]outbox.HeldSlot{}
	for _, state := range shards {
		at := s.shards[state.Shard]
		if at == nil {
			continue
		}
		asSeen := at.node == state.Node && at.epoch == state.Epoch && (at.node == node || s.beatOf(at.node) == state.Beat)
		again := at.node == node && at.epoch == state.Epoch+1
		if !asSeen && !again {
			continue
		}
		if (at.released || at.node == node) && len(at.held) > 0 {
			held[state.Shard] = slices.Clone(at.held)
		}
		at.node, at.epoch, at.released = node, at.epoch+1, false
		lease.Epochs[state.Shard] = at.epoch
	}
	return lease, held, nil
}

// beatOf is the node's beat, 0 if it has none.
func (s *Store) beatOf(node outbox.NodeID) int64 {
	if n := s.nodes[node]; n != nil {
		return n.Beat
	}
	return 0
}

// Release implements outbox.Ownership.
func (s *Store) Release(ctx context.Context, lease outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for id := range lease.Epochs {
		if s.fence(lease, id) == nil {
			at := s.shards[id]
			at.node, at.released, at.held = outbox.NodeID{}, true, nil
			for _, slot := range held[id] {
				slot.Deadline, slot.Began = truncate(slot.Deadline), truncate(slot.Began)
				at.held = append(at.held, slot)
			}
		}
	}
	return nil
}

// Heads implements outbox.Ownership.
func (s *Store) Heads(ctx context.Context, shards []outbox.Shard) ([]outbox.Head, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	type line struct {
		endpoint outbox.EndpointID
		lane     outbox.Lane
	}
	first := map[line]outbox.Head{}
	for _, d := range s.pending {
		if d.Parked() || !slices.Contains(shards, d.Shard) {
			continue
		}
		l := line{d.Endpoint, d.Lane}
		if h, seen := first[l]; !seen || d.NextAt.Before(h.NextAt) {
			first[l] = outbox.Head{Shard: d.Shard, Endpoint: d.Endpoint, Tenant: d.Tenant, Lane: d.Lane, NextAt: d.NextAt}
		}
	}
	return slices.SortedFunc(maps.Values(first), func(a, b outbox.Head) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), compareIDs(a.Endpoint, b.Endpoint), cmp.Compare(a.Lane, b.Lane))
	}), nil
}

// WriteHealth implements outbox.Health.
func (s *Store) WriteHealth(ctx context.Context, lease outbox.Lease, rows []outbox.EndpointHealth, _ time.Time) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, h := range rows {
		if s.fence(lease, h.Shard) == nil {
			h.NextProbeAt = truncate(h.NextProbeAt)
			s.health[h.Endpoint] = h
		}
	}
	return nil
}

// LoadHealth implements outbox.Health.
func (s *Store) LoadHealth(ctx context.Context, shards []outbox.Shard) ([]outbox.EndpointHealth, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var rows []outbox.EndpointHealth
	for _, id := range slices.SortedFunc(maps.Keys(s.health), compareIDs) {
		if h := s.health[id]; slices.Contains(shards, h.Shard) {
			rows = append(rows, h)
		}
	}
	return rows, nil
}

// HealthOf implements outbox.Health.
func (s *Store) HealthOf(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]outbox.EndpointHealth, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	of := map[outbox.EndpointID]outbox.EndpointHealth{}
	for _, e := range endpoints {
		if h, ok := s.health[e.Endpoint]; ok && (tenant.ID == 0 || h.Tenant == tenant.ID) {
			of[e.Endpoint] = h
		}
	}
	return of, nil
}

// MarkSuspects implements outbox.Careful.
func (s *Store) MarkSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, _ time.Time) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, one := range suspects {
		if err := s.fence(lease, one.Shard); err != nil {
			return err
		}
	}
	for _, one := range suspects {
		s.suspects[nameOf(one)] = max(s.suspects[nameOf(one)], one.Strikes)
	}
	return nil
}

// nameOf is what a suspect is found by.
func nameOf(one outbox.Suspect) outbox.Suspect {
	one.Strikes = 0
	return one
}

// Suspects implements outbox.Careful.
func (s *Store) Suspects(ctx context.Context, shards []outbox.Shard) ([]outbox.Suspect, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var found []outbox.Suspect
	for one, strikes := range s.suspects {
		if !slices.Contains(shards, one.Shard) {
			continue
		}
		if s.pending[one.Delivery] == nil && s.row(one.Shard, one.Pos) == nil {
			delete(s.suspects, one)
			continue
		}
		one.Strikes = strikes
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b outbox.Suspect) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), compareIDs(a.Delivery, b.Delivery), cmp.Compare(a.Pos, b.Pos))
	})
	return found, nil
}

// Strike implements outbox.Careful.
func (s *Store) Strike(ctx context.Context, lease outbox.Lease, one outbox.Suspect, now time.Time) (int, error) {
	one.Strikes++
	if err := s.MarkSuspects(ctx, lease, []outbox.Suspect{one}, now); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspects[nameOf(one)], nil
}

// ClearSuspects implements outbox.Careful.
func (s *Store) ClearSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, one := range suspects {
		if err := s.fence(lease, one.Shard); err != nil {
			return err
		}
	}
	for _, one := range suspects {
		delete(s.suspects, nameOf(one))
	}
	return nil
}
