package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// parkedAt is outbox.Parked. It is spelled out in statements, and not a parameter, because a
// partial index is found by it.
const parkedAt = "253402214400000000"

// orderKey is what strict order is kept within.
type orderKey struct {
	shard    outbox.Shard
	endpoint outbox.EndpointID
	key      string
}

func keyOf(d *outbox.Delivery) orderKey { return orderKey{d.Shard, d.Endpoint, d.OrderingKey} }

func (k *orderKey) args() []any { return []any{int64(k.shard), k.endpoint[:], k.key} }

// keySet collects keys whose turns may have to be given, in the order they came.
type keySet struct {
	list []orderKey
	seen map[orderKey]bool
}

func (s *keySet) add(k orderKey) {
	if s.seen[k] {
		return
	}
	if s.seen == nil {
		s.seen = map[orderKey]bool{}
	}
	s.seen[k] = true
	s.list = append(s.list, k)
}

// giveTurns gives, in each key in which no delivery has the turn, the turn to the one with the
// lowest sequence, unless a dead letter before it holds the key. It returns whose turn came.
func (s *keySet) giveTurns(w *session, now time.Time) (freed []outbox.Delivery, err error) {
	for i := range s.list {
		d, came, err := giveTurn(w, &s.list[i], now)
		if err != nil {
			return nil, err
		}
		if came {
			freed = append(freed, d)
		}
	}
	return freed, nil
}

func giveTurn(w *session, k *orderKey, now time.Time) (d outbox.Delivery, came bool, err error) {
	err = w.get(`
		SELECT `+deliveryColumns+`
		FROM waybill_delivery AS d
		WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3 AND turn_at IS NOT NULL
			AND NOT EXISTS (
				SELECT 1 FROM waybill_delivery
				WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3
					AND turn_at IS NOT NULL AND next_at < `+parkedAt+`
			)
			AND NOT EXISTS (
				SELECT 1 FROM waybill_dead_letter AS l
				WHERE l.shard = ?1 AND l.endpoint = ?2 AND l.ordering_key = ?3
					AND l.holds = 1 AND l.sequence < d.sequence
			)
		ORDER BY sequence
		LIMIT 1`,
		k.args(), deliveryTo(&d)...)
	if errors.Is(err, sql.ErrNoRows) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d.NextAt, d.TurnAt = now, now
	_, err = w.exec(`
		UPDATE waybill_delivery
		SET next_at = ?, turn_at = ?
		WHERE dlv = ?`,
		micros(now), micros(now), d.ID[:])
	return d, err == nil, err
}

// taken reports whether a key has pending deliveries, or a dead letter that holds it.
func (k *orderKey) taken(w *session) (taken bool, err error) {
	err = w.get(`
		SELECT EXISTS (
				SELECT 1 FROM waybill_delivery
				WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3 AND turn_at IS NOT NULL
			)
			OR EXISTS (
				SELECT 1 FROM waybill_dead_letter
				WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3 AND holds = 1
			)`,
		k.args(), &taken)
	return taken, err
}

// orderOf is the order an endpoint's rows are kept in.
type orderOf struct {
	state string // "" for side by side
	hold  bool
}

// keeps reports whether what is planned is kept in order.
func (o orderOf) keeps() bool { return o.state == "freeing" || o.state == "strict" }

func readOrder(w *session, endpoint outbox.EndpointID) (o orderOf, err error) {
	err = w.get(`
		SELECT state, hold
		FROM waybill_endpoint_order
		WHERE endpoint = ?`,
		[]any{endpoint[:]}, &o.state, &o.hold)
	if errors.Is(err, sql.ErrNoRows) {
		return orderOf{}, nil
	}
	return o, err
}

// strictPlans decides about the strict deliveries of a Route call before any is inserted.
type strictPlans struct {
	stored map[outbox.DeliveryID]*outbox.Delivery
	parked []outbox.DeliveryID
}

// of returns the delivery as it is to be stored.
func (s *strictPlans) of(d *outbox.Delivery) *outbox.Delivery {
	if !d.Strict() {
		return d
	}
	return s.stored[d.ID]
}

// decidePlans finds out which strict deliveries are next in their keys.
func decidePlans(w *session, plans []outbox.Plan) (s strictPlans, err error) {
	var strict []*outbox.Delivery
	for i := range plans {
		for j := range plans[i].Deliveries {
			if d := &plans[i].Deliveries[j]; d.Strict() {
				strict = append(strict, d)
			}
		}
	}
	if len(strict) == 0 {
		return s, nil
	}
	slices.SortStableFunc(strict, func(a, b *outbox.Delivery) int { return cmp.Compare(a.Sequence, b.Sequence) })
	s.stored = make(map[outbox.DeliveryID]*outbox.Delivery, len(strict))
	keeps := map[outbox.EndpointID]bool{}
	taken := map[orderKey]bool{}
	for _, d := range strict {
		own := *d
		s.stored[d.ID] = &own
		if _, known := keeps[d.Endpoint]; !known {
			if keeps[d.Endpoint], err = keepsOrder(w, d.Shard, d.Endpoint); err != nil {
				return s, err
			}
		}
		if !keeps[d.Endpoint] {
			own.TurnAt = time.Time{}
			continue
		}
		k := keyOf(d)
		if _, known := taken[k]; !known {
			if taken[k], err = k.taken(w); err != nil {
				return s, err
			}
		}
		if taken[k] {
			own.NextAt, own.TurnAt = outbox.Parked, outbox.Parked
			s.parked = append(s.parked, d.ID)
		}
		taken[k] = true
	}
	return s, nil
}

// keepsOrder reports whether what is planned for an endpoint is kept in order. One with nothing
// pending needs no switching: its rows are in order from here on.
func keepsOrder(w *session, shard outbox.Shard, endpoint outbox.EndpointID) (bool, error) {
	o, err := readOrder(w, endpoint)
	if err != nil || o.state != "" {
		return o.keeps(), err
	}
	n, err := w.exec(`
		INSERT INTO waybill_endpoint_order (endpoint, shard, hold, state)
		SELECT e.id, e.shard, e.on_dead = 'hold', 'strict'
		FROM waybill_endpoint AS e
		WHERE e.id = ?1 AND e.ordering = 'strict' AND e.deleted_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM waybill_delivery WHERE shard = ?2 AND endpoint = ?1)`,
		endpoint[:], int64(shard))
	return n == 1, err
}
