package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// MarkSuspects implements outbox.Careful.
func (s *Store) MarkSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, now time.Time) error {
	return s.careful(ctx, lease, suspects, func(w *session, one *outbox.Suspect) error {
		_, err := markSuspect(w, one, now)
		return err
	})
}

// Strike implements outbox.Careful.
func (s *Store) Strike(ctx context.Context, lease outbox.Lease, suspect outbox.Suspect, now time.Time) (count int, err error) {
	suspect.Strikes++
	err = s.careful(ctx, lease, []outbox.Suspect{suspect}, func(w *session, one *outbox.Suspect) error {
		count, err = markSuspect(w, one, now)
		return err
	})
	return count, err
}

// ClearSuspects implements outbox.Careful.
func (s *Store) ClearSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect) error {
	return s.careful(ctx, lease, suspects, clearSuspect)
}

// careful does something for each suspect under the lease.
func (s *Store) careful(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, each func(w *session, one *outbox.Suspect) error) error {
	if len(suspects) == 0 {
		return nil
	}
	return s.write(ctx, func(w *session) error {
		for i := range suspects {
			if i == 0 || suspects[i].Shard != suspects[i-1].Shard {
				if err := fence(w, lease, []outbox.Shard{suspects[i].Shard}); err != nil {
					return err
				}
			}
			if err := each(w, &suspects[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// markSuspect writes a suspect down and returns its strikes.
func markSuspect(w *session, one *outbox.Suspect, now time.Time) (strikes int, err error) {
	err = w.get(`
		INSERT INTO waybill_suspect (shard, dlv, pos, strikes, at)
		VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (shard, dlv, pos) DO UPDATE SET strikes = max(strikes, excluded.strikes)
		RETURNING strikes`,
		[]any{int64(one.Shard), one.Delivery[:], one.Pos, int64(one.Strikes), micros(now)}, &strikes)
	return strikes, err
}

// clearSuspect takes a suspect out of the journal.
func clearSuspect(w *session, one *outbox.Suspect) error {
	_, err := w.exec(`
		DELETE FROM waybill_suspect
		WHERE shard = ? AND dlv = ? AND pos = ?`,
		int64(one.Shard), one.Delivery[:], one.Pos)
	return err
}

// Suspects implements outbox.Careful.
func (s *Store) Suspects(ctx context.Context, shards []outbox.Shard) (found []outbox.Suspect, err error) {
	list := shardList(shards)
	err = s.write(ctx, func(w *session) error {
		found = nil
		if _, err := w.exec(`
			DELETE FROM waybill_suspect
			WHERE shard IN (SELECT value FROM json_each(?))
				AND NOT EXISTS (SELECT 1 FROM waybill_delivery d WHERE d.dlv = waybill_suspect.dlv)
				AND NOT EXISTS (SELECT 1 FROM waybill_outbox o WHERE o.pos = waybill_suspect.pos AND o.shard = waybill_suspect.shard)`,
			list); err != nil {
			return err
		}
		return w.each(`
			SELECT shard, dlv, pos, strikes
			FROM waybill_suspect
			WHERE shard IN (SELECT value FROM json_each(?))
			ORDER BY shard, dlv, pos`,
			[]any{list},
			func(scan scan) error {
				var one outbox.Suspect
				err := scan(&one.Shard, idTo{(*[16]byte)(&one.Delivery)}, &one.Pos, &one.Strikes)
				found = append(found, one)
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
