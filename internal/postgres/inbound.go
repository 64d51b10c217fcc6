package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// inboundMet is what is stored under the key of a member that arrived at a source.
type inboundMet struct {
	event  outbox.EventID
	digest []byte
}

// inboundName is the key as the members of one batch are told apart by it; "" for none.
func inboundName(in *outbox.Inbound) string {
	if in == nil {
		return ""
	}
	return "in " + string(in.Key[:])
}

// arrived are the members of a batch that arrived at a source, sorted by key: two batches with the
// same keys then wait for each other in one order, and never in a circle.
func arrived(batch []outbox.NewEvent, members []int) []int {
	var in []int
	for _, i := range members {
		if batch[i].Inbound != nil {
			in = append(in, i)
		}
	}
	slices.SortFunc(in, func(i, j int) int {
		a, b := batch[i].Inbound, batch[j].Inbound
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), bytes.Compare(a.Key[:], b.Key[:]))
	})
	return in
}

// queueFreed lets go of keys that are remembered for a while only, where that is over.
func (k *keyedBatch) queueFreed(b *pgx.Batch) {
	of := func(i *int) *outbox.Inbound { return k.batch[*i].Inbound }
	brief := slices.DeleteFunc(slices.Clone(k.inbound), func(i int) bool { return of(&i).Window == 0 })
	if len(brief) == 0 {
		return
	}
	b.Queue(`
		UPDATE waybill.inbound AS old
		SET key = NULL
		FROM unnest($1::smallint[], $2::bytea[], $3::uuid[]) AS new (shard, key, before)
		WHERE old.shard = new.shard AND old.key = new.key AND old.id < new.before`,
		column(brief, func(i *int) int16 { return int16(of(i).Shard) }),
		column(brief, func(i *int) []byte { return of(i).Key[:] }),
		column(brief, func(i *int) zeronull.UUID {
			return uuid(outbox.InboundFloor(k.batch[*i].CreatedAt.Add(-of(i).Window)))
		}))
}

// queueInbound claims the keys and reads what they hold: this batch's own event, or an earlier one.
func (k *keyedBatch) queueInbound(b *pgx.Batch) {
	if len(k.inbound) == 0 {
		return
	}
	of := func(i *int) *outbox.Inbound { return k.batch[*i].Inbound }
	k.queueFreed(b)
	b.Queue(`
		INSERT INTO waybill.inbound (shard, source, id, outcome, key, digest, event, provider_id, topic, bytes)
		SELECT shard, source, id, 'accepted', key, digest, id, provider_id, topic, bytes
		FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::bytea[], $5::bytea[], $6::text[], $7::text[], $8::integer[])
			AS new (shard, source, id, key, digest, provider_id, topic, bytes)
		ON CONFLICT (shard, key) WHERE key IS NOT NULL DO NOTHING`,
		column(k.inbound, func(i *int) int16 { return int16(of(i).Shard) }),
		column(k.inbound, func(i *int) zeronull.UUID { return uuid(of(i).Source) }),
		column(k.inbound, func(i *int) zeronull.UUID { return uuid(k.batch[*i].ID) }),
		column(k.inbound, func(i *int) []byte { return of(i).Key[:] }),
		column(k.inbound, func(i *int) []byte { return of(i).Digest[:] }),
		column(k.inbound, func(i *int) zeronull.Text { return zeronull.Text(of(i).ProviderID) }),
		column(k.inbound, func(i *int) zeronull.Text { return zeronull.Text(of(i).Topic) }),
		column(k.inbound, func(i *int) int32 { return int32(len(k.batch[*i].Payload)) }))
	k.queueReleased(b)
	k.queueSeen(b, k.inbound)
}

// queueReleased drops the bodies of quarantined requests whose event is stored now: from here on the
// event holds the bytes, and an erasure looks for them there. There are next to none, which a planner
// without statistics does not know: OFFSET keeps it to one look into an index for each key.
func (k *keyedBatch) queueReleased(b *pgx.Batch) {
	b.Queue(`
		WITH ended AS MATERIALIZED (
			SELECT new.shard, q.source, q.id, a.event
			FROM unnest($1::smallint[], $2::bytea[]) AS new (shard, key)
			CROSS JOIN LATERAL (
				SELECT source, id, digest
				FROM waybill.inbound
				WHERE shard = new.shard AND release_key = new.key AND outcome = 'quarantined'
				OFFSET 0
			) AS q
			CROSS JOIN LATERAL (
				SELECT event
				FROM waybill.inbound
				WHERE shard = new.shard AND key = new.key AND digest = q.digest
				OFFSET 0
			) AS a
		)
		UPDATE waybill.inbound AS q
		SET released = coalesce(q.released, e.event), body = NULL
		FROM ended AS e
		WHERE q.shard = e.shard AND q.source = e.source AND q.id = e.id`,
		column(k.inbound, func(i *int) int16 { return int16(k.batch[*i].Inbound.Shard) }),
		column(k.inbound, func(i *int) []byte { return k.batch[*i].Inbound.Key[:] }))
}

// queueSeen reads what is stored under the members' keys.
func (k *keyedBatch) queueSeen(b *pgx.Batch, members []int) {
	b.Queue(`
		SELECT wanted.n, held.event, held.digest
		FROM unnest($1::smallint[], $2::bytea[]) WITH ORDINALITY AS wanted (shard, key, n)
		JOIN waybill.inbound AS held ON held.shard = wanted.shard AND held.key = wanted.key`,
		column(members, func(i *int) int16 { return int16(k.batch[*i].Inbound.Shard) }),
		column(members, func(i *int) []byte { return k.batch[*i].Inbound.Key[:] }),
	).Query(func(rows pgx.Rows) error {
		var n int
		var met inboundMet
		_, err := pgx.ForEachRow(rows, []any{&n, intoID(&met.event), &met.digest}, func() error {
			k.seen[members[n-1]] = met
			met.digest = nil
			return nil
		})
		return err
	})
}

// meetInbound takes out the members whose key belongs to an earlier event.
func (k *keyedBatch) meetInbound() {
	k.open = slices.DeleteFunc(k.open, func(i int) bool {
		met, ok := k.seen[i]
		e := &k.batch[i]
		if !ok || met.event == e.ID {
			return false
		}
		k.accepted[i] = outbox.Accepted{
			ID: met.event, CreatedAt: met.event.Time(), Duplicate: true,
			OtherBody: !bytes.Equal(met.digest, e.Inbound.Digest[:]),
		}
		return true
	})
}

// RecordRequests implements outbox.Inbox.
func (s *Store) RecordRequests(ctx context.Context, requests []outbox.InboundRequest) error {
	if len(requests) == 0 {
		return nil
	}
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			INSERT INTO waybill.inbound
				(shard, source, id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata, release_key)
			SELECT shard, source, id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata::jsonb, release_key
			FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
				$9::uuid[], $10::bytea[], $11::integer[], $12::integer[], $13::bytea[], $14::text[], $15::bytea[])
				AS new (shard, source, id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata, release_key)
			ON CONFLICT (shard, source, id) DO NOTHING`,
			column(requests, func(r *outbox.InboundRequest) int16 { return int16(r.Shard) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.UUID { return uuid(r.Source) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.UUID { return uuid(r.ID) }),
			column(requests, func(r *outbox.InboundRequest) string { return string(r.Outcome) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.Text { return zeronull.Text(r.Reason) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.Text { return zeronull.Text(r.Detail) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.Text { return zeronull.Text(r.ProviderID) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.Text { return zeronull.Text(r.Topic) }),
			column(requests, func(r *outbox.InboundRequest) zeronull.UUID { return uuid(r.Event) }),
			column(requests, func(r *outbox.InboundRequest) []byte { return r.Digest[:] }),
			column(requests, func(r *outbox.InboundRequest) int32 { return int32(r.Bytes) }),
			column(requests, func(r *outbox.InboundRequest) int32 { return int32(max(r.Times, 1)) }),
			column(requests, func(r *outbox.InboundRequest) []byte { return r.Body }),
			column(requests, func(r *outbox.InboundRequest) zeronull.Text { return zeronull.Text(metadataText(r.Metadata)) }),
			column(requests, func(r *outbox.InboundRequest) []byte {
				if r.ReleaseKey == [32]byte{} {
					return nil
				}
				return r.ReleaseKey[:]
			}))
		return nil
	})
}

// metadataText is "" for none.
func metadataText(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return string(text)
}

const requestColumns = "id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata::text, release_key, released"

func scanRequest(rows pgx.Rows, r *outbox.InboundRequest) error {
	var digest, metadata, key []byte
	err := rows.Scan(intoID(&r.ID), &r.Outcome, intoText(&r.Reason), intoText(&r.Detail), intoText(&r.ProviderID),
		intoText(&r.Topic), intoID(&r.Event), &digest, &r.Bytes, &r.Times, &r.Body, &metadata, &key, intoID(&r.Released))
	if err != nil {
		return err
	}
	copy(r.Digest[:], digest)
	copy(r.ReleaseKey[:], key)
	if metadata != nil {
		return json.Unmarshal(metadata, &r.Metadata)
	}
	return nil
}

// Request implements outbox.Inbox.
func (s *Store) Request(ctx context.Context, source outbox.SourceID, shard outbox.Shard, id outbox.InboundID) (outbox.InboundRequest, error) {
	var list []outbox.InboundRequest
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+requestColumns+`
			FROM waybill.inbound
			WHERE shard = $1 AND source = $2 AND id = $3`,
			int16(shard), uuid(source), uuid(id),
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r := outbox.InboundRequest{Source: source, Shard: shard}
				if err := scanRequest(rows, &r); err != nil {
					return err
				}
				list = append(list, r)
			}
			return rows.Err()
		})
	})
	if err == nil && len(list) == 0 {
		err = outbox.ErrNotFound
	}
	if err != nil {
		return outbox.InboundRequest{}, err
	}
	return list[0], nil
}

// ReleaseRequest implements outbox.Inbox.
func (s *Store) ReleaseRequest(ctx context.Context, source outbox.SourceID, shard outbox.Shard, id outbox.InboundID, event outbox.EventID) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE waybill.inbound
			SET released = coalesce(released, $4), body = NULL
			WHERE shard = $1 AND source = $2 AND id = $3 AND outcome = 'quarantined'`,
			int16(shard), uuid(source), uuid(id), uuid(event))
		if err == nil && tag.RowsAffected() == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// Requests implements outbox.Inbox.
func (s *Store) Requests(ctx context.Context, q outbox.RequestQuery, page outbox.Page) ([]outbox.InboundRequest, outbox.InboundID, error) {
	beyond, order := past(page, "id", "$3"), direction(page)
	wanted := "true"
	switch q.Outcome {
	case "":
	case outbox.InboundAccepted:
		wanted = "outcome = 'accepted'"
	default:
		wanted = "outcome = $5 AND outcome <> 'accepted'" // what the index says
	}
	var list []outbox.InboundRequest
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+requestColumns+`
			FROM waybill.inbound
			WHERE shard = $1 AND source = $2 AND ($3::uuid IS NULL OR `+beyond+`) AND `+wanted+` AND ($5::text IS NULL OR true)
			ORDER BY id `+order+`
			LIMIT $4`,
			int16(q.Shard), uuid(q.Source), uuid(q.After), page.Limit+1, zeronull.Text(q.Outcome),
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r := outbox.InboundRequest{Source: q.Source, Shard: q.Shard}
				if err := scanRequest(rows, &r); err != nil {
					return err
				}
				list = append(list, r)
			}
			return rows.Err()
		})
	})
	if err != nil || len(list) <= page.Limit {
		return list, outbox.InboundID{}, err
	}
	list = list[:page.Limit]
	return list, list[page.Limit-1].ID, nil
}

// maxDropped is how many bodies go in the transaction that deletes their source or its tenant. Where
// there are more, upkeep takes the rest.
const maxDropped = 10_000

// The ids before and behind all requests.
var noID, lastID = [16]byte{}, [16]byte(outbox.LastInboundID)

// dropBodies takes the bodies of quarantined requests away. The condition is on their sources s, by
// $1; $2 and $3 bound their ids, $4 how many.
func dropBodies(sources string) string {
	return `
		UPDATE waybill.inbound AS i
		SET body = NULL
		FROM (
			SELECT i.shard, i.source, i.id
			FROM waybill.source AS s
			JOIN waybill.inbound AS i ON i.shard = s.shard AND i.source = s.id
			WHERE ` + sources + ` AND i.outcome = 'quarantined' AND i.outcome <> 'accepted' AND i.body IS NOT NULL
				AND i.id > $2 AND i.id < $3
			LIMIT $4
		) AS doomed
		WHERE i.shard = doomed.shard AND i.source = doomed.source AND i.id = doomed.id`
}

// pruneInbound forgets requests that are no longer kept, and deleted sources without any.
func (s *Store) pruneInbound(ctx context.Context, now time.Time) error {
	type kept struct {
		id    outbox.SourceID
		shard outbox.Shard
		keep  time.Duration
		gone  bool // it, or its tenant, is deleted
	}
	var sources []kept
	err := s.read(ctx, people, func(b *pgx.Batch) {
		sources = nil
		b.Queue(`
			SELECT s.id, s.shard, s.keep, s.deleted_at IS NOT NULL OR NOT EXISTS (
				SELECT
				FROM waybill.tenant AS t
				WHERE t.id = s.tenant AND t.deleted_at IS NULL
			)
			FROM waybill.source AS s
			ORDER BY s.id`).Query(func(rows pgx.Rows) error {
			var one kept
			_, err := pgx.ForEachRow(rows, []any{intoID(&one.id), intoShard(&one.shard), &one.keep, &one.gone}, func() error {
				sources = append(sources, one)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("prune inbound requests: %w", err)
	}
	for _, one := range sources {
		if one.gone { // what its deletion left, or another process put there since
			err := s.inBatches(ctx, "drop quarantined bodies", `
				WITH dropped AS (`+dropBodies("s.id = $1")+`
					RETURNING 1
				)
				SELECT count(*)
				FROM dropped`,
				uuid(one.id), noID, lastID, pruneBatch)
			if err != nil {
				return err
			}
		}
		err := s.inBatches(ctx, "prune inbound requests", `
			WITH doomed AS (
				SELECT shard, source, id
				FROM waybill.inbound
				WHERE shard = $1 AND source = $2 AND id < $3
				ORDER BY id
				LIMIT $4
			),
			pruned AS (
				DELETE FROM waybill.inbound AS i
				USING doomed AS d
				WHERE i.shard = d.shard AND i.source = d.source AND i.id = d.id
				RETURNING 1
			)
			SELECT count(*)
			FROM pruned`,
			int16(one.shard), uuid(one.id), uuid(outbox.InboundFloor(now.Add(-one.keep))), pruneBatch)
		if err != nil {
			return err
		}
	}
	return s.maintenance(ctx, "forget deleted sources", `
		DELETE FROM waybill.source AS s
		WHERE s.deleted_at IS NOT NULL
			AND NOT EXISTS (
				SELECT
				FROM waybill.inbound AS i
				WHERE i.shard = s.shard AND i.source = s.id
			)`)
}
