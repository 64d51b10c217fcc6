package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// arrivals are webhooks alone: they take nobody's keys but those of their sources.
var arrivals = limits{lock: 100 * time.Millisecond, statement: 15 * time.Second, plan: planOnce}

// arrivalsAlone reports whether all members arrived at sources, and are nothing else besides.
func (k *keyedBatch) arrivalsAlone() bool {
	return !slices.ContainsFunc(k.batch, func(e outbox.NewEvent) bool {
		return e.Inbound == nil || e.Chosen || e.IdempotencyKey != "" || e.OrderingKey != ""
	})
}

// The event is stored exactly if its key was free, and the outbox row exactly if the event was.
const insertArrivals = `
	WITH new AS MATERIALIZED (
		SELECT *
		FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::timestamptz[],
			$9::smallint[], $10::uuid[], $11::bytea[], $12::bytea[], $13::text[], $14::text[])
			AS new (shard, tenant, id, type, metadata, payload, sha256, created_at,
				source_shard, source, key, digest, provider_id, topic)
	),
	claimed AS (
		INSERT INTO waybill.inbound (shard, source, id, outcome, key, digest, event, provider_id, topic, bytes)
		SELECT source_shard, source, id, 'accepted', key, digest, id, provider_id, topic, octet_length(payload)
		FROM new
		ON CONFLICT (shard, key) WHERE key IS NOT NULL DO NOTHING
		RETURNING id
	),
	stored AS (
		INSERT INTO waybill.event (shard, tenant, id, type, metadata, payload, sha256, created_at)
		SELECT shard, tenant, id, type, metadata::jsonb, payload, sha256, created_at
		FROM new
		WHERE id IN (SELECT id FROM claimed)
		RETURNING shard, tenant, id
	)
	INSERT INTO waybill.outbox (shard, kind, tenant, event)
	SELECT shard, 0, tenant, id
	FROM stored
	RETURNING shard, tenant, event, pos`

// insertArrived stores webhooks in one statement. Only those that met an earlier one are looked up,
// when all is committed: what is told of them is what everybody can see.
func (s *Store) insertArrived(ctx context.Context, k *keyedBatch) ([]outbox.Accepted, []outbox.Conflict, error) {
	k.stored = positions{}
	err := s.transact(ctx, arrivals, func(b *pgx.Batch) error {
		k.queueFreed(b)
		k.queueArrivals(b)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	met := slices.DeleteFunc(slices.Clone(k.inbound), func(i int) bool {
		pos, now := k.stored[storedAs(&k.batch[i])]
		k.accepted[i].Pos = pos
		return now
	})
	if err := s.lookUpArrived(ctx, k, met); err != nil {
		return nil, nil, err
	}
	for _, i := range k.inbound {
		if digest := k.batch[i].Inbound.Digest; k.seen[i].digest == nil {
			k.seen[i] = inboundMet{k.batch[i].ID, digest[:]} // its own, for a twin to be compared with
		}
	}
	return k.answer(), nil, nil
}

func (k *keyedBatch) queueArrivals(b *pgx.Batch) {
	event := func(i *int) *outbox.NewEvent { return &k.batch[*i] }
	// The planner takes both sides of the join for a few rows, and walks one for each of the other:
	// 128 ms for 500 events that way, 23 ms this way, the commit included.
	b.Queue(`SELECT set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)`)
	b.Queue(insertArrivals,
		column(k.inbound, func(i *int) int16 { return int16(event(i).Tenant.Shard) }),
		column(k.inbound, func(i *int) int64 { return int64(event(i).Tenant.ID) }),
		column(k.inbound, func(i *int) zeronull.UUID { return uuid(event(i).ID) }),
		column(k.inbound, func(i *int) string { return event(i).Type }),
		column(k.inbound, func(i *int) zeronull.Text { return zeronull.Text(object(event(i).Metadata)) }),
		column(k.inbound, func(i *int) []byte { return notNil(event(i).Payload) }),
		column(k.inbound, func(i *int) []byte { return event(i).SHA256[:] }),
		column(k.inbound, func(i *int) time.Time { return event(i).CreatedAt }),
		column(k.inbound, func(i *int) int16 { return int16(event(i).Inbound.Shard) }),
		column(k.inbound, func(i *int) zeronull.UUID { return uuid(event(i).Inbound.Source) }),
		column(k.inbound, func(i *int) []byte { return event(i).Inbound.Key[:] }),
		column(k.inbound, func(i *int) []byte { return event(i).Inbound.Digest[:] }),
		column(k.inbound, func(i *int) zeronull.Text { return zeronull.Text(event(i).Inbound.ProviderID) }),
		column(k.inbound, func(i *int) zeronull.Text { return zeronull.Text(event(i).Inbound.Topic) }),
	).Query(k.stored.collect)
	b.Queue(`SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_nestloop', 'on', true)`)
	k.queueReleased(b)
}

// errPruned: the row that was met is gone again.
var errPruned = errors.New("the request under this key was forgotten meanwhile")

// lookUpArrived finds the events whose keys the members met: earlier ones, or this batch's own from
// a run whose commit was not answered.
func (s *Store) lookUpArrived(ctx context.Context, k *keyedBatch, met []int) error {
	if len(met) == 0 {
		return nil
	}
	if err := s.read(ctx, hot, func(b *pgx.Batch) { k.queueSeen(b, met) }); err != nil {
		return err
	}
	for _, i := range met {
		held, found := k.seen[i]
		if !found {
			// Running the batch again stores it now.
			return &outbox.WriteError{Fault: outbox.FaultRetry, Err: errPruned}
		}
		if held.event == k.batch[i].ID {
			k.accepted[i].Duplicate = true
			continue
		}
		k.accepted[i] = outbox.Accepted{
			ID: held.event, CreatedAt: held.event.Time(), Duplicate: true,
			OtherBody: !bytes.Equal(held.digest, k.batch[i].Inbound.Digest[:]),
		}
	}
	return nil
}
