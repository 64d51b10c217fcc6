package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// ordering is the order an endpoint's rows are kept in. One without is kept in none.
type ordering struct {
	state orderState
	hold  bool
}

type orderState int

const (
	parking orderState = iota // rows planned side by side are being parked
	freeing                   // turns are being given
	strict
	leaving // turns are being taken back
)

// keeps reports whether what is planned is kept in order.
func (o *ordering) keeps() bool { return o != nil && (o.state == freeing || o.state == strict) }

type orderKey struct {
	endpoint outbox.EndpointID
	key      string
}

func keyOf(d *outbox.Delivery) orderKey { return orderKey{d.Endpoint, d.OrderingKey} }

// keySet collects keys whose turns may have to be given, in the order they came.
type keySet struct{ list []orderKey }

func (s *keySet) add(k orderKey) {
	if !slices.Contains(s.list, k) {
		s.list = append(s.list, k)
	}
}

// inLine reports whether an endpoint's rows are in line with its configuration.
func (s *Store) inLine(e *outbox.Endpoint) bool {
	o := s.order[e.ID]
	if e.Ordering != outbox.OrderingStrict {
		return o == nil
	}
	return o != nil && o.state == strict && o.hold == (e.OnDead == outbox.OnDeadHold)
}

// keepsOrder reports whether what is planned for an endpoint is kept in order. One with nothing
// pending needs no switching.
func (s *Store) keepsOrder(id outbox.EndpointID) bool {
	if o := s.order[id]; o != nil {
		return o.keeps()
	}
	e := s.endpoints[id]
	if e == nil || !e.DeletedAt.IsZero() || e.Ordering != outbox.OrderingStrict || len(s.of[id]) > 0 {
		return false
	}
	s.order[id] = &ordering{state: strict, hold: e.OnDead == outbox.OnDeadHold}
	return true
}

// taken reports whether a key has pending deliveries, or a dead letter that holds it.
func (s *Store) taken(k orderKey) bool {
	for _, d := range s.of[k.endpoint] {
		if d.Strict() && keyOf(d) == k {
			return true
		}
	}
	for _, l := range s.dead {
		if l.holds && keyOf(&l.Delivery) == k {
			return true
		}
	}
	return false
}

// giveTurns gives, in each key in which no delivery has the turn, the turn to the one with the
// lowest sequence, unless a dead letter before it holds the key.
func (s *Store) giveTurns(keys keySet, now time.Time) []outbox.Delivery {
	var freed []outbox.Delivery
	for _, k := range keys.list {
		if d := s.turn(k); d != nil {
			d.NextAt, d.TurnAt = now, now
			freed = append(freed, *d)
		}
	}
	return freed
}

func (s *Store) turn(k orderKey) *outbox.Delivery {
	var first *outbox.Delivery
	for _, d := range s.of[k.endpoint] {
		if !d.Strict() || keyOf(d) != k {
			continue
		}
		if !d.Parked() {
			return nil // somebody has it
		}
		if first == nil || d.Sequence < first.Sequence {
			first = d
		}
	}
	if first == nil {
		return nil
	}
	for _, l := range s.dead {
		if l.holds && keyOf(&l.Delivery) == k && l.Sequence < first.Sequence {
			return nil
		}
	}
	return first
}

// letGo makes dead letters of the endpoint hold nothing any more, and returns their keys.
func (s *Store) letGo(id outbox.EndpointID, meant func(d *outbox.Delivery) bool) (keys keySet) {
	for _, l := range s.dead {
		if l.holds && l.Endpoint == id && meant(&l.Delivery) {
			l.holds = false
			keys.add(keyOf(&l.Delivery))
		}
	}
	slices.SortFunc(keys.list, func(a, b orderKey) int { return strings.Compare(a.key, b.key) })
	return keys
}

func everyone(*outbox.Delivery) bool { return true }

// Reorder implements outbox.Order.
func (s *Store) Reorder(ctx context.Context, lease outbox.Lease, shard outbox.Shard, endpoint outbox.EndpointID, from outbox.ReorderFrom, limit int, now time.Time) (outbox.Reordered, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Reordered{}, err
	}
	defer s.mu.Unlock()
	if err := s.fence(lease, shard); err != nil {
		return outbox.Reordered{}, err
	}
	now = truncate(now)
	e := s.endpoints[endpoint]
	wants := e != nil && e.DeletedAt.IsZero() && e.Ordering == outbox.OrderingStrict
	o := s.order[endpoint]
	switch {
	case !wants && o == nil:
		return outbox.Reordered{Done: true}, nil
	case !wants:
		return s.leave(endpoint, limit, now), nil
	}
	hold := e.OnDead == outbox.OnDeadHold
	if !o.keeps() {
		return s.park(endpoint, hold, limit), nil
	}
	if o.hold != hold {
		o.hold, o.state = hold, freeing
	}
	var keys keySet
	if !hold {
		keys = s.letGo(endpoint, everyone)
	}
	return s.walk(o, endpoint, keys, from, limit, now), nil
}

// leave makes strict deliveries ones that go side by side.
func (s *Store) leave(id outbox.EndpointID, limit int, now time.Time) outbox.Reordered {
	s.order[id] = &ordering{state: leaving}
	s.letGo(id, everyone)
	rows := s.pick(limit, func(d *outbox.Delivery) bool { return d.Endpoint == id && d.Strict() })
	done := outbox.Reordered{Done: len(rows) < limit}
	for _, d := range rows {
		if d.Parked() {
			d.NextAt = now
		}
		d.TurnAt = time.Time{}
		done.Freed = append(done.Freed, *d)
	}
	if done.Done {
		delete(s.order, id)
	}
	return done
}

// park parks deliveries that were planned side by side.
func (s *Store) park(id outbox.EndpointID, hold bool, limit int) outbox.Reordered {
	o := &ordering{state: parking, hold: hold}
	s.order[id] = o
	var done outbox.Reordered
	for _, d := range s.pick(limit, func(d *outbox.Delivery) bool { return d.Endpoint == id && d.Lane != outbox.LaneTest && !d.Parked() }) {
		d.NextAt, d.TurnAt = outbox.Parked, outbox.Parked
		done.Parked = append(done.Parked, d.ID)
	}
	if len(done.Parked) < limit {
		o.state = freeing
	}
	return done
}

// walk gives the turns of the next keys.
func (s *Store) walk(o *ordering, id outbox.EndpointID, keys keySet, from outbox.ReorderFrom, limit int, now time.Time) outbox.Reordered {
	var behind []string
	for _, d := range s.of[id] {
		if d.Strict() && (!from.Begun || d.OrderingKey > from.Key) && !slices.Contains(behind, d.OrderingKey) {
			behind = append(behind, d.OrderingKey)
		}
	}
	slices.SortFunc(behind, cmp.Compare[string])
	done := outbox.Reordered{Done: len(behind) < limit}
	for _, key := range behind[:min(limit, len(behind))] {
		keys.add(orderKey{id, key})
		done.Next = outbox.ReorderFrom{Begun: true, Key: key}
	}
	done.Freed = s.giveTurns(keys, now)
	if done.Done {
		done.Next, o.state = outbox.ReorderFrom{}, strict
	}
	return done
}
