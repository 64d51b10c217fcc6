package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Quarantine implements outbox.Inbox. It is seldom, so each request has a transaction of its own, and
// waits for its own key only.
func (s *Store) Quarantine(ctx context.Context, requests []outbox.InboundRequest) ([]outbox.Quarantined, error) {
	met := make([]outbox.Quarantined, len(requests))
	for i := range requests {
		r := &requests[i]
		err := s.edit(ctx, func(tx pgx.Tx) (err error) {
			met[i], err = quarantine(ctx, tx, r)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return met, nil
}

// quarantine counts a repeat first: it waits there for a release that is under way, and what it sees
// after that is the released event.
func quarantine(ctx context.Context, tx pgx.Tx, r *outbox.InboundRequest) (met outbox.Quarantined, err error) {
	// Two at once that are the first of their key would make two rows.
	if _, err := tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock(hashtextextended('waybill quarantine ' || encode($1::bytea, 'hex'), 0))`, r.ReleaseKey[:]); err != nil {
		return met, err
	}
	since := [16]byte(r.Since())
	tag, err := tx.Exec(ctx, `
		UPDATE waybill.inbound AS q
		SET times = q.times + 1
		WHERE q.shard = $1 AND q.source = $2 AND q.released IS NULL AND q.body IS NOT NULL AND q.id = (
			SELECT id
			FROM waybill.inbound
			WHERE shard = $1 AND source = $2 AND release_key = $3 AND digest = $4 AND id >= $5
				AND outcome = 'quarantined' AND released IS NULL AND body IS NOT NULL
			ORDER BY id DESC
			LIMIT 1
		)`,
		int16(r.Shard), uuid(r.Source), r.ReleaseKey[:], r.Digest[:], since)
	if err != nil || tag.RowsAffected() > 0 {
		return outbox.Quarantined{Repeat: tag.RowsAffected() > 0}, err
	}
	err = tx.QueryRow(ctx, `
		SELECT event
		FROM waybill.inbound
		WHERE shard = $1 AND key = $2 AND digest = $3 AND id >= $4
		UNION ALL
		SELECT released
		FROM waybill.inbound
		WHERE shard = $1 AND release_key = $2 AND digest = $3 AND id >= $4 AND released IS NOT NULL
		LIMIT 1`,
		int16(r.Shard), r.ReleaseKey[:], r.Digest[:], since,
	).Scan(intoID(&met.Event))
	if !errors.Is(err, pgx.ErrNoRows) {
		return met, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO waybill.inbound
			(shard, source, id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata, release_key)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::text::jsonb, $15)
		ON CONFLICT (shard, source, id) DO NOTHING`,
		int16(r.Shard), uuid(r.Source), uuid(r.ID), string(r.Outcome), zeronull.Text(r.Reason), zeronull.Text(r.Detail),
		zeronull.Text(r.ProviderID), zeronull.Text(r.Topic), uuid(r.Event), r.Digest[:], int32(r.Bytes), int32(max(r.Times, 1)),
		r.Body, zeronull.Text(metadataText(r.Metadata)), r.ReleaseKey[:])
	return met, err
}
