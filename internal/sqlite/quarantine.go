package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Quarantine implements outbox.Inbox.
func (s *Store) Quarantine(ctx context.Context, requests []outbox.InboundRequest) (met []outbox.Quarantined, err error) {
	err = s.write(ctx, func(w *session) error {
		met = make([]outbox.Quarantined, len(requests))
		for i := range requests {
			if met[i], err = quarantine(w, &requests[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return met, err
}

func quarantine(w *session, r *outbox.InboundRequest) (met outbox.Quarantined, err error) {
	since := r.Since()
	n, err := w.exec(`
		UPDATE waybill_inbound
		SET times = times + 1
		WHERE shard = ? AND source = ? AND id = (
			SELECT id
			FROM waybill_inbound
			WHERE shard = ? AND release_key = ? AND source = ? AND digest = ? AND id >= ?
				AND outcome = 'quarantined' AND released IS NULL AND body IS NOT NULL
			ORDER BY id DESC
			LIMIT 1)`,
		int64(r.Shard), r.Source[:], int64(r.Shard), r.ReleaseKey[:], r.Source[:], r.Digest[:], since[:])
	if err != nil || n > 0 {
		return outbox.Quarantined{Repeat: n > 0}, err
	}
	err = w.get(`
		SELECT event
		FROM (
			SELECT event
			FROM waybill_inbound
			WHERE shard = ?1 AND key = ?2 AND digest = ?3 AND id >= ?4
			UNION ALL
			SELECT released
			FROM waybill_inbound INDEXED BY waybill_inbound_release
			WHERE shard = ?1 AND release_key = ?2 AND digest = ?3 AND id >= ?4 AND released IS NOT NULL
		)
		LIMIT 1`,
		[]any{int64(r.Shard), r.ReleaseKey[:], r.Digest[:], since[:]}, idTo{(*[16]byte)(&met.Event)})
	if !errors.Is(err, sql.ErrNoRows) {
		return met, err
	}
	return met, insertRequest(w, r)
}
