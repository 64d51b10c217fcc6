package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// MarkSuspects implements outbox.Careful.
func (s *Store) MarkSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, now time.Time) error {
	return s.careful(ctx, lease, suspects, func(b *pgx.Batch, sorted []outbox.Suspect) {
		queueSuspects(b, sorted, now)
	})
}

// Strike implements outbox.Careful.
func (s *Store) Strike(ctx context.Context, lease outbox.Lease, suspect outbox.Suspect, now time.Time) (int, error) {
	suspect.Strikes++
	count := 0
	err := s.careful(ctx, lease, []outbox.Suspect{suspect}, func(b *pgx.Batch, sorted []outbox.Suspect) {
		queueSuspects(b, sorted, now).QueryRow(func(row pgx.Row) error { return row.Scan(&count) })
	})
	return count, err
}

// ClearSuspects implements outbox.Careful.
func (s *Store) ClearSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect) error {
	return s.careful(ctx, lease, suspects, queueClear)
}

// careful runs one statement under the lease, for suspects in the order of their keys.
func (s *Store) careful(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, queue func(b *pgx.Batch, sorted []outbox.Suspect)) error {
	if len(suspects) == 0 {
		return nil
	}
	var f fence
	return s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			shards := map[outbox.Shard]bool{}
			for i := range suspects {
				shards[suspects[i].Shard] = true
			}
			f.queue(b, lease, shards)
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			queue(b, slices.SortedFunc(slices.Values(suspects), bySuspect))
			return nil
		},
	)
}

func bySuspect(a, b outbox.Suspect) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), bytes.Compare(a.Delivery[:], b.Delivery[:]), cmp.Compare(a.Pos, b.Pos))
}

// queueSuspects writes suspects down and returns their strikes.
func queueSuspects(b *pgx.Batch, suspects []outbox.Suspect, now time.Time) *pgx.QueuedQuery {
	return b.Queue(`
		INSERT INTO waybill.suspect AS s (shard, dlv, pos, strikes, at)
		SELECT shard, dlv, pos, max(strikes), $1
		FROM unnest($2::smallint[], $3::uuid[], $4::bigint[], $5::int[]) AS new (shard, dlv, pos, strikes)
		GROUP BY shard, dlv, pos
		ORDER BY shard, dlv, pos
		ON CONFLICT (shard, dlv, pos) DO UPDATE
		SET strikes = greatest(s.strikes, excluded.strikes)
		RETURNING strikes`,
		append(append([]any{now}, suspectKeys(suspects)...),
			column(suspects, func(s *outbox.Suspect) int32 { return int32(s.Strikes) }))...)
}

// suspectKeys are the keys of suspects as arrays. An outbox row's delivery is the zero uuid.
func suspectKeys(suspects []outbox.Suspect) []any {
	return []any{
		column(suspects, func(s *outbox.Suspect) int16 { return int16(s.Shard) }),
		column(suspects, func(s *outbox.Suspect) [16]byte { return s.Delivery }),
		column(suspects, func(s *outbox.Suspect) int64 { return s.Pos }),
	}
}

func queueClear(b *pgx.Batch, suspects []outbox.Suspect) {
	b.Queue(`
		DELETE FROM waybill.suspect AS s
		USING unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS gone (shard, dlv, pos)
		WHERE s.shard = gone.shard AND s.dlv = gone.dlv AND s.pos = gone.pos`,
		suspectKeys(suspects)...)
}

// queueSurvived takes the deliveries of results out of the journal, where they were written into
// it: outside careful shards nothing is, and nothing is looked for.
func queueSurvived(b *pgx.Batch, results []outbox.Result) {
	var survived []outbox.Suspect
	for i := range results {
		if r := &results[i]; r.Suspect {
			survived = append(survived, outbox.Suspect{Shard: r.Delivery.Shard, Delivery: r.Delivery.ID})
		}
	}
	if len(survived) > 0 {
		slices.SortFunc(survived, bySuspect)
		queueClear(b, survived)
	}
}

// Suspects implements outbox.Careful.
func (s *Store) Suspects(ctx context.Context, shards []outbox.Shard) ([]outbox.Suspect, error) {
	var found []outbox.Suspect
	err := s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			DELETE FROM waybill.suspect AS s
			WHERE s.shard = ANY ($1)
				AND NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = s.shard AND d.dlv = s.dlv)
				AND NOT EXISTS (SELECT FROM waybill.outbox AS o WHERE o.shard = s.shard AND o.pos = s.pos)`,
			shardColumn(shards))
		b.Queue(`
			SELECT shard, dlv, pos, strikes
			FROM waybill.suspect
			WHERE shard = ANY ($1)
			ORDER BY shard, dlv, pos`,
			shardColumn(shards),
		).Query(func(rows pgx.Rows) error {
			var one outbox.Suspect
			_, err := pgx.ForEachRow(rows, []any{intoShard(&one.Shard), intoID(&one.Delivery), &one.Pos, &one.Strikes}, func() error {
				found = append(found, one)
				return nil
			})
			return err
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
