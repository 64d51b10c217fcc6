package postgres

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Parts of statements about strict order. They are spelled out, and not parameters, because the
// partial indexes are found by them.
const (
	parkedAt = `'9999-12-31 00:00:00+00'::timestamptz`      // outbox.Parked
	keyOfD   = `(coalesce(d.ordering_key, '') COLLATE "C")` // of a delivery d
	keyOfL   = `(coalesce(l.ordering_key, '') COLLATE "C")` // of a dead letter l
	inOrder  = `o.state IN ('freeing', 'strict')`           // what is planned is kept in order
	// holding says whether the delivery d that dies holds its key.
	holding = `d.turn_at IS NOT NULL AND EXISTS (
		SELECT FROM waybill.endpoint_order AS o WHERE o.shard = d.shard AND o.endpoint = d.endpoint AND o.hold)`
)

// orderKey is what strict order is kept within.
type orderKey struct {
	shard    outbox.Shard
	endpoint outbox.EndpointID
	key      string
}

func keyOf(d *outbox.Delivery) orderKey { return orderKey{d.Shard, d.Endpoint, d.OrderingKey} }

// keySet collects keys whose turns may have to be given.
type keySet map[orderKey]struct{}

func (k *keySet) add(key orderKey) {
	if *k == nil {
		*k = keySet{}
	}
	(*k)[key] = struct{}{}
}

// queueKeys makes the columns of keys.
func keyColumns(keys keySet) (shards []int16, endpoints uuids, names []string) {
	for k := range keys {
		shards, endpoints, names = append(shards, int16(k.shard)), append(endpoints, uuid(k.endpoint)), append(names, k.key)
	}
	return shards, endpoints, names
}

// giveTurns is the end of a statement that begins with the keys k (shard, endpoint, key), each
// once. In each in which no delivery has the turn the one with the lowest sequence gets it, unless
// a dead letter before it holds the key. $1 is now. The lock of the shards is held.
const giveTurns = `,
	head AS (
		SELECT k.shard, first.tenant, first.dlv
		FROM k
		CROSS JOIN LATERAL (
			SELECT d.tenant, d.dlv, d.sequence
			FROM waybill.delivery AS d
			WHERE d.shard = k.shard AND d.endpoint = k.endpoint AND ` + keyOfD + ` = k.key AND d.turn_at IS NOT NULL
			ORDER BY d.sequence
			LIMIT 1
		) AS first
		WHERE NOT EXISTS (
				SELECT FROM waybill.delivery AS d
				WHERE d.shard = k.shard AND d.endpoint = k.endpoint AND ` + keyOfD + ` = k.key
					AND d.turn_at IS NOT NULL AND d.next_at < ` + parkedAt + `
			)
			AND NOT EXISTS (
				SELECT FROM waybill.dead_letter AS l
				WHERE l.shard = k.shard AND l.endpoint = k.endpoint AND ` + keyOfL + ` = k.key
					AND l.holds AND l.sequence < first.sequence
			)
	)
	UPDATE waybill.delivery AS d
	SET next_at = $1, turn_at = $1
	FROM head AS w
	WHERE ` + ofWantedD + `
	RETURNING ` + deliveryColumns

// queueTurns gives the turns of keys and collects whose they are now.
func queueTurns(b *pgx.Batch, keys keySet, now time.Time, freed *[]outbox.Delivery) {
	if len(keys) == 0 {
		return
	}
	shards, endpoints, names := keyColumns(keys)
	b.Queue(`
		WITH k AS (
			SELECT shard, endpoint, key
			FROM unnest($2::smallint[], $3::uuid[], $4::text[]) AS given (shard, endpoint, key)
		)`+giveTurns,
		now, shards, endpoints, names,
	).Query(collectDeliveries(freed))
}

// queueLock takes the locks of shards, whoever owns them: of two transactions that end and plan
// deliveries of one key, the second must see what the first did.
func queueLock(b *pgx.Batch, keys keySet) {
	var shards []int16
	for k := range keys {
		shards = append(shards, int16(k.shard))
	}
	slices.Sort(shards)
	b.Queue(`
		SELECT
		FROM waybill.shard
		WHERE shard = ANY ($1)
		ORDER BY shard
		FOR UPDATE`,
		slices.Compact(shards))
}

// strictPlans decides about the strict deliveries of a Route call.
type strictPlans struct {
	deliveries []*outbox.Delivery // by sequence
	keys       map[orderKey]*keyState
	list       []orderKey
}

// keyState is how a key stands when the shards have been locked.
type keyState struct {
	ordered bool // the endpoint's rows are kept in order
	taken   bool // a delivery is pending, or a dead one holds it
}

// strictOf finds the strict deliveries of plans, nil if there are none.
func strictOf(plans []outbox.Plan) *strictPlans {
	var s *strictPlans
	for i := range plans {
		for j := range plans[i].Deliveries {
			d := &plans[i].Deliveries[j]
			if !d.Strict() {
				continue
			}
			if s == nil {
				s = &strictPlans{keys: map[orderKey]*keyState{}}
			}
			s.deliveries = append(s.deliveries, d)
			if k := keyOf(d); s.keys[k] == nil {
				s.keys[k] = &keyState{}
				s.list = append(s.list, k)
			}
		}
	}
	if s != nil {
		slices.SortStableFunc(s.deliveries, func(a, b *outbox.Delivery) int { return cmp.Compare(a.Sequence, b.Sequence) })
	}
	return s
}

// queueLook reads how the keys stand. An endpoint with nothing pending needs no switching: its
// rows are in order from here on.
func (s *strictPlans) queueLook(b *pgx.Batch) {
	seen := map[outbox.EndpointID]bool{}
	var shards []int16
	var endpoints uuids
	for _, k := range s.list {
		if !seen[k.endpoint] {
			seen[k.endpoint] = true
			shards, endpoints = append(shards, int16(k.shard)), append(endpoints, uuid(k.endpoint))
		}
	}
	b.Queue(`
		INSERT INTO waybill.endpoint_order (shard, endpoint, hold, state)
		SELECT w.shard, w.endpoint, e.on_dead = 'hold', 'strict'
		FROM unnest($1::smallint[], $2::uuid[]) AS w (shard, endpoint)
		JOIN waybill.endpoint AS e ON e.id = w.endpoint AND e.ordering = 'strict' AND e.deleted_at IS NULL
		WHERE NOT EXISTS (SELECT FROM waybill.endpoint_order AS o WHERE o.shard = w.shard AND o.endpoint = w.endpoint)
			AND NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = w.shard AND d.endpoint = w.endpoint)`,
		shards, endpoints)
	b.Queue(`
		SELECT w.n,
			EXISTS (
				SELECT FROM waybill.delivery AS d
				WHERE d.shard = w.shard AND d.endpoint = w.endpoint AND `+keyOfD+` = w.key AND d.turn_at IS NOT NULL
			)
			OR EXISTS (
				SELECT FROM waybill.dead_letter AS l
				WHERE l.shard = w.shard AND l.endpoint = w.endpoint AND `+keyOfL+` = w.key AND l.holds
			)
		FROM unnest($1::smallint[], $2::uuid[], $3::text[]) WITH ORDINALITY AS w (shard, endpoint, key, n)
		JOIN waybill.endpoint_order AS o ON o.shard = w.shard AND o.endpoint = w.endpoint AND `+inOrder,
		column(s.list, func(k *orderKey) int16 { return int16(k.shard) }),
		column(s.list, func(k *orderKey) zeronull.UUID { return uuid(k.endpoint) }),
		column(s.list, func(k *orderKey) string { return k.key }),
	).Query(func(rows pgx.Rows) error {
		var n int
		var taken bool
		_, err := pgx.ForEachRow(rows, []any{&n, &taken}, func() error {
			*s.keys[s.list[n-1]] = keyState{ordered: true, taken: taken}
			return nil
		})
		return err
	})
}

// decide returns the strict deliveries as they are to be stored, and which of them are parked.
func (s *strictPlans) decide() (stored map[outbox.DeliveryID]*outbox.Delivery, parked []outbox.DeliveryID) {
	if s == nil {
		return nil, nil
	}
	stored = make(map[outbox.DeliveryID]*outbox.Delivery, len(s.deliveries))
	for _, d := range s.deliveries {
		own := *d
		switch state := s.keys[keyOf(d)]; {
		case !state.ordered:
			own.TurnAt = time.Time{}
		case state.taken:
			own.NextAt, own.TurnAt = outbox.Parked, outbox.Parked
			parked = append(parked, d.ID)
		default:
			state.taken = true
			own.TurnAt = own.NextAt
		}
		stored[d.ID] = &own
	}
	return stored, parked
}
