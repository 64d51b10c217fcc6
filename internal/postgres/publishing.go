package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// InsertEvents implements outbox.Publishing. A batch without keys is one statement. One with
// keys takes them first, in sorted order, and must look at what it met before it may commit.
func (s *Store) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	if slices.ContainsFunc(batch, func(e outbox.NewEvent) bool { return e.Keyed() }) {
		return s.insertKeyed(ctx, batch)
	}
	accepted := make([]outbox.Accepted, len(batch))
	members := make([]*outbox.NewEvent, len(batch))
	for i := range batch {
		members[i] = &batch[i]
		accepted[i] = outbox.Accepted{ID: batch[i].ID, CreatedAt: batch[i].CreatedAt}
	}
	var stored positions
	err := plainly(func(passOver bool) error {
		return s.transact(ctx, hot, func(b *pgx.Batch) error {
			stored.queue(b, members, passOver)
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range batch {
		pos, now := stored[storedAs(&batch[i])]
		accepted[i].Pos, accepted[i].Duplicate = pos, !now // an earlier run of this batch stored it
	}
	return accepted, nil, nil
}

// positions are the outbox positions of events that a statement really inserted. Tenants may choose
// the same id, so one batch may hold it twice.
type positions map[eventKey]int64

// storedAs is what an event is known by in the tables.
func storedAs(e *outbox.NewEvent) eventKey { return eventKey{e.Tenant, e.ID} }

// collect reads rows of (shard, tenant, id, pos).
func (p positions) collect(rows pgx.Rows) error {
	var key eventKey
	var pos int64
	_, err := pgx.ForEachRow(rows, []any{intoShard(&key.tenant.Shard), &key.tenant.ID, intoID(&key.id), &pos}, func() error {
		p[key] = pos
		return nil
	})
	return err
}

// queue inserts events; those that are there already fail it, or are passed over. The outbox row is
// made from the event row that was inserted, so running the statement again makes neither, even if
// the first outbox row has been routed and deleted meanwhile.
func (p *positions) queue(b *pgx.Batch, members []*outbox.NewEvent, passOver bool) {
	*p = make(positions, len(members))
	b.Queue(`
		WITH stored AS (
			INSERT INTO waybill.event
				(shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
			SELECT shard, tenant, id, type, ordering_key, metadata::jsonb, payload, sha256, created_at
			FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[],
				$7::bytea[], $8::bytea[], $9::timestamptz[])
				AS new (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
			`+passing(passOver, "")+`
			RETURNING shard, tenant, id
		)
		INSERT INTO waybill.outbox (shard, kind, tenant, event)
		SELECT shard, 0, tenant, id
		FROM stored
		RETURNING shard, tenant, event, pos`,
		column(members, func(e **outbox.NewEvent) int16 { return int16((*e).Tenant.Shard) }),
		column(members, func(e **outbox.NewEvent) int64 { return int64((*e).Tenant.ID) }),
		column(members, func(e **outbox.NewEvent) zeronull.UUID { return uuid((*e).ID) }),
		column(members, func(e **outbox.NewEvent) string { return (*e).Type }),
		column(members, func(e **outbox.NewEvent) zeronull.Text { return zeronull.Text((*e).OrderingKey) }),
		column(members, func(e **outbox.NewEvent) zeronull.Text { return zeronull.Text(object((*e).Metadata)) }),
		column(members, func(e **outbox.NewEvent) []byte { return notNil((*e).Payload) }),
		column(members, func(e **outbox.NewEvent) []byte { return (*e).SHA256[:] }),
		column(members, func(e **outbox.NewEvent) time.Time { return (*e).CreatedAt }),
	).Query(p.collect)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// insertKeyed stores a batch whose members may meet earlier events.
func (s *Store) insertKeyed(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	k := newKeyedBatch(batch)
	if k.arrivalsAlone() {
		return s.insertArrived(ctx, k)
	}
	err := s.transact(ctx, keyed,
		func(b *pgx.Batch) error {
			k.queueKeys(b)
			k.queueInbound(b)
			return nil
		},
		func(b *pgx.Batch) error {
			k.meetKeys()
			k.meetInbound()
			k.queueEvents(b)
			return nil
		},
		func(*pgx.Batch) error {
			k.meetEvents()
			if len(k.conflicts) > 0 {
				return errNothingWritten
			}
			return nil
		},
	)
	if errors.Is(err, errNothingWritten) {
		slices.SortFunc(k.conflicts, func(a, b outbox.Conflict) int { return cmp.Compare(a.Index, b.Index) })
		return nil, k.conflicts, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return k.answer(), nil, nil
}

// keyedBatch follows the members of one batch through its transaction.
type keyedBatch struct {
	batch     []outbox.NewEvent
	accepted  []outbox.Accepted
	conflicts []outbox.Conflict
	// twin is the earlier member of the same batch with the same key or id, or -1.
	twin []int
	// open are the members that still have to be stored.
	open []int

	keys   []int          // members with a key, sorted by it
	met    map[int]keyRow // what is stored under a member's key now
	stored positions
	found  map[int]eventRow // what is stored under a member's id now

	inbound []int              // members that arrived at a source
	seen    map[int]inboundMet // what is stored under their keys now
}

type keyRow struct {
	digest    []byte
	event     outbox.EventID
	createdAt time.Time
	request   bool // another kind of request has the key
}

type eventRow struct {
	eventType string
	sha256    []byte
	createdAt time.Time
}

func newKeyedBatch(batch []outbox.NewEvent) *keyedBatch {
	k := &keyedBatch{
		batch:    batch,
		accepted: make([]outbox.Accepted, len(batch)),
		twin:     make([]int, len(batch)),
		met:      map[int]keyRow{},
		found:    map[int]eventRow{},
		seen:     map[int]inboundMet{},
	}
	type name struct {
		tenant outbox.TenantID
		key    string
	}
	first := map[name]int{}
	for i := range batch {
		e := &batch[i]
		k.twin[i] = -1
		k.accepted[i] = outbox.Accepted{ID: e.ID, CreatedAt: e.CreatedAt}
		for _, n := range []struct {
			name
			conflict error
			has      bool
		}{
			{name{e.Tenant.ID, "key " + e.IdempotencyKey}, outbox.ErrIdempotencyMismatch, e.IdempotencyKey != ""},
			{name{e.Tenant.ID, "id " + string(e.ID[:])}, outbox.ErrIDConflict, e.Chosen},
			{name{0, inboundName(e.Inbound)}, nil, e.Inbound != nil},
		} {
			if !n.has || k.twin[i] >= 0 {
				continue
			}
			j, taken := first[n.name]
			switch {
			case !taken:
				first[n.name] = i
			case n.conflict == nil || batch[j].Digest() == e.Digest():
				k.twin[i] = j
			default:
				k.twin[i] = j
				k.conflicts = append(k.conflicts, outbox.Conflict{Index: i, Err: n.conflict})
			}
		}
		if k.twin[i] < 0 {
			k.open = append(k.open, i)
			if e.IdempotencyKey != "" {
				k.keys = append(k.keys, i)
			}
		}
	}
	k.inbound = arrived(batch, k.open)
	slices.SortFunc(k.keys, func(i, j int) int {
		a, b := &batch[i], &batch[j]
		return cmp.Or(
			cmp.Compare(a.Tenant.Shard, b.Tenant.Shard),
			cmp.Compare(a.Tenant.ID, b.Tenant.ID),
			cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})
	return k
}

// queueKeys claims the keys and reads what they hold: this batch's own event, or an earlier one.
// A key whose retention is over is free again even where nobody pruned it yet.
func (k *keyedBatch) queueKeys(b *pgx.Batch) {
	if len(k.keys) == 0 {
		return
	}
	shards := column(k.keys, func(i *int) int16 { return int16(k.batch[*i].Tenant.Shard) })
	tenants := column(k.keys, func(i *int) int64 { return int64(k.batch[*i].Tenant.ID) })
	names := column(k.keys, func(i *int) string { return k.batch[*i].IdempotencyKey })
	times := column(k.keys, func(i *int) time.Time { return k.batch[*i].CreatedAt })
	b.Queue(`
		INSERT INTO waybill.idempotency AS old (shard, tenant, kind, key, digest, event, created_at)
		SELECT shard, tenant, 0, key, digest, event, created_at
		FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::bytea[], $5::uuid[], $6::timestamptz[])
			AS new (shard, tenant, key, digest, event, created_at)
		ON CONFLICT (shard, tenant, kind, key) DO UPDATE
		SET digest = excluded.digest, event = excluded.event, created_at = excluded.created_at
		WHERE old.created_at < excluded.created_at - (SELECT idempotency_retention FROM waybill.setting)`,
		shards, tenants, names,
		column(k.keys, func(i *int) []byte { d := k.batch[*i].Digest(); return d[:] }),
		column(k.keys, func(i *int) zeronull.UUID { return uuid(k.batch[*i].ID) }),
		times)
	b.Queue(`
		SELECT wanted.n, held.digest, held.event, held.created_at,
			EXISTS (
				SELECT
				FROM waybill.idempotency AS r
				WHERE r.shard = wanted.shard AND r.tenant = wanted.tenant AND r.kind = 1 AND r.key = wanted.key
					AND r.created_at >= wanted.at - (SELECT idempotency_retention FROM waybill.setting)
			)
		FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::timestamptz[]) WITH ORDINALITY AS wanted (shard, tenant, key, at, n)
		JOIN waybill.idempotency AS held
			ON held.shard = wanted.shard AND held.tenant = wanted.tenant AND held.kind = 0 AND held.key = wanted.key`,
		shards, tenants, names, times,
	).Query(func(rows pgx.Rows) error {
		var n int
		var row keyRow
		_, err := pgx.ForEachRow(rows, []any{&n, &row.digest, intoID(&row.event), &row.createdAt, &row.request}, func() error {
			k.met[k.keys[n-1]] = row
			row.digest = nil
			return nil
		})
		return err
	})
}

// meetKeys takes out the members whose key belongs to an earlier event.
func (k *keyedBatch) meetKeys() {
	k.open = slices.DeleteFunc(k.open, func(i int) bool {
		held, ok := k.met[i]
		e := &k.batch[i]
		if digest := e.Digest(); ok && (held.request || !bytes.Equal(digest[:], held.digest)) {
			k.conflicts = append(k.conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIdempotencyMismatch})
			return true
		}
		if !ok || held.event == e.ID && held.createdAt.Equal(e.CreatedAt.Truncate(time.Microsecond)) {
			return false // claimed just now, or by an earlier run of this batch
		}
		k.accepted[i] = outbox.Accepted{ID: held.event, CreatedAt: held.createdAt, Duplicate: true, Again: true}
		return true
	})
}

// queueEvents stores what is left and reads what is stored under the chosen ids.
func (k *keyedBatch) queueEvents(b *pgx.Batch) {
	if len(k.open) == 0 {
		return
	}
	members := make([]*outbox.NewEvent, len(k.open))
	for n, i := range k.open {
		members[n] = &k.batch[i]
	}
	// Chosen ids are taken in order, so that two batches cannot each wait for the other. A
	// minted id meets nobody and keeps its place in the order of acceptance.
	slices.SortStableFunc(members, func(a, b *outbox.NewEvent) int {
		if !a.Chosen || !b.Chosen {
			return 0
		}
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	k.stored.queue(b, members, true)

	var r idRange
	for _, i := range k.open {
		r.add(k.batch[i].ID)
	}
	b.Queue(`
		SELECT wanted.n, held.type, held.sha256, held.created_at
		FROM unnest($1::smallint[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS wanted (shard, tenant, id, n)
		CROSS JOIN LATERAL (
			SELECT type, sha256, created_at
			FROM waybill.event AS e
			WHERE e.shard = wanted.shard AND e.tenant = wanted.tenant AND e.id = wanted.id AND e.id BETWEEN $4 AND $5
			UNION ALL
			SELECT type, sha256, created_at
			FROM waybill.event_kept AS e
			WHERE e.shard = wanted.shard AND e.tenant = wanted.tenant AND e.id = wanted.id
		) AS held`,
		column(k.open, func(i *int) int16 { return int16(k.batch[*i].Tenant.Shard) }),
		column(k.open, func(i *int) int64 { return int64(k.batch[*i].Tenant.ID) }),
		column(k.open, func(i *int) zeronull.UUID { return uuid(k.batch[*i].ID) }),
		uuid(r.low), uuid(r.high),
	).Query(func(rows pgx.Rows) error {
		var n int
		var row eventRow
		_, err := pgx.ForEachRow(rows, []any{&n, &row.eventType, &row.sha256, &row.createdAt}, func() error {
			k.found[k.open[n-1]] = row
			row.sha256 = nil
			return nil
		})
		return err
	})
}

// meetEvents judges the members whose id was taken.
func (k *keyedBatch) meetEvents() {
	for _, i := range k.open {
		e := &k.batch[i]
		if pos, ok := k.stored[storedAs(e)]; ok {
			k.accepted[i].Pos = pos
			continue
		}
		held := k.found[i]
		if held.eventType != e.Type || !bytes.Equal(held.sha256, e.SHA256[:]) {
			k.conflicts = append(k.conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIDConflict})
			continue
		}
		k.accepted[i] = outbox.Accepted{ID: e.ID, CreatedAt: held.createdAt, Duplicate: true}
	}
}

func (k *keyedBatch) answer() []outbox.Accepted {
	for i, j := range k.twin {
		if j >= 0 {
			k.accepted[i] = outbox.Accepted{ID: k.accepted[j].ID, CreatedAt: k.accepted[j].CreatedAt, Duplicate: true}
			if in := k.batch[i].Inbound; in != nil {
				k.accepted[i].OtherBody = !bytes.Equal(k.seen[j].digest, in.Digest[:])
			}
		}
	}
	return k.accepted
}
