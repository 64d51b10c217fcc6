package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// errConflicts undoes a batch some members of which conflict; it never leaves the store.
var errConflicts = errors.New("conflicts")

// InsertEvents stores the events and an outbox row for each.
func (s *Store) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	if len(batch) == 0 {
		return nil, nil, nil
	}
	var accepted []outbox.Accepted
	var conflicts []outbox.Conflict
	err := s.write(ctx, func(w *session) error {
		accepted, conflicts = make([]outbox.Accepted, len(batch)), nil
		for i := range batch {
			var err error
			accepted[i], err = insertEvent(w, &batch[i])
			switch {
			case errors.Is(err, outbox.ErrIDConflict), errors.Is(err, outbox.ErrIdempotencyMismatch):
				conflicts = append(conflicts, outbox.Conflict{Index: i, Err: err})
			case err != nil:
				return err
			}
		}
		if len(conflicts) > 0 {
			return errConflicts
		}
		return nil
	})
	switch {
	case errors.Is(err, errConflicts):
		return nil, conflicts, nil
	case err != nil:
		return nil, nil, err
	}
	return accepted, nil, nil
}

// insertEvent stores one event, or finds that it is stored. The key is looked at first: what it
// stands for decides, whatever id the repeated publish carries.
func insertEvent(w *session, e *outbox.NewEvent) (outbox.Accepted, error) {
	if e.IdempotencyKey != "" {
		first, err := keyedEvent(w, e)
		if first.Duplicate || err != nil {
			return first, err
		}
	}
	if e.Inbound != nil {
		first, err := arrivedBefore(w, e)
		if first.Duplicate || err != nil {
			return first, err
		}
	}
	var metadata any
	if len(e.Metadata) > 0 {
		metadata = toJSON(e.Metadata)
	}
	inserted, err := w.exec(`
		INSERT INTO waybill_event (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (shard, tenant, id) DO NOTHING`,
		int64(e.Tenant.Shard), int64(e.Tenant.ID), e.ID[:], e.Type, e.OrderingKey, metadata, blob(e.Payload), e.SHA256[:], micros(e.CreatedAt))
	if err != nil {
		return outbox.Accepted{}, err
	}
	accepted := outbox.Accepted{ID: e.ID, CreatedAt: e.CreatedAt}
	if inserted == 0 {
		accepted, err = storedEvent(w, e)
	} else {
		accepted.Pos, err = insertOutbox(w, outbox.OutboxRow{
			Shard:  e.Tenant.Shard,
			Kind:   outbox.OutboxEvent,
			Tenant: e.Tenant.ID,
			Event:  e.ID,
		})
	}
	if err != nil || e.IdempotencyKey == "" {
		return accepted, err
	}
	digest := e.Digest()
	_, err = w.exec(`
		INSERT OR REPLACE INTO waybill_idempotency (shard, tenant, key, digest, event, created_at)
		VALUES (?, ?, ?, ?, ?, ?)`,
		int64(e.Tenant.Shard), int64(e.Tenant.ID), e.IdempotencyKey, digest[:], accepted.ID[:], micros(e.CreatedAt))
	return accepted, err
}

// keyedEvent returns the event an idempotency key was used for first: a Duplicate, if any. A key
// whose retention is over is free again even where nobody pruned it yet.
func keyedEvent(w *session, e *outbox.NewEvent) (outbox.Accepted, error) {
	var digest [32]byte
	var first outbox.Accepted
	err := w.get(`
		SELECT digest, event, created_at
		FROM waybill_idempotency
		WHERE tenant = ? AND key = ? AND created_at >= ? - (SELECT idempotency_retention FROM waybill_setting)`,
		[]any{int64(e.Tenant.ID), e.IdempotencyKey, micros(e.CreatedAt)},
		digestTo{&digest}, idTo{(*[16]byte)(&first.ID)}, timeTo{&first.CreatedAt})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		var request bool
		err := w.get(`
			SELECT EXISTS (
				SELECT 1
				FROM waybill_request
				WHERE tenant = ? AND key = ? AND claimed_at >= ? - (SELECT idempotency_retention FROM waybill_setting)
			)`,
			[]any{int64(e.Tenant.ID), e.IdempotencyKey, micros(e.CreatedAt)}, &request)
		if err == nil && request {
			err = outbox.ErrIdempotencyMismatch
		}
		return outbox.Accepted{}, err
	case err != nil:
		return outbox.Accepted{}, err
	case digest != e.Digest():
		return outbox.Accepted{}, outbox.ErrIdempotencyMismatch
	}
	first.Duplicate = true
	// Its own event of its own moment is a batch that is run again, and meets itself.
	first.Again = first.ID != e.ID || micros(first.CreatedAt) != micros(e.CreatedAt)
	return first, nil
}

// storedEvent answers for an event whose id exists: a Duplicate if the content is the same.
func storedEvent(w *session, e *outbox.NewEvent) (outbox.Accepted, error) {
	var eventType string
	var sum [32]byte
	var created time.Time
	err := w.get(`
		SELECT type, sha256, created_at
		FROM waybill_event
		WHERE shard = ? AND tenant = ? AND id = ?`,
		[]any{int64(e.Tenant.Shard), int64(e.Tenant.ID), e.ID[:]},
		&eventType, digestTo{&sum}, timeTo{&created})
	if err != nil {
		return outbox.Accepted{}, err
	}
	if eventType != e.Type || sum != e.SHA256 {
		return outbox.Accepted{}, outbox.ErrIDConflict
	}
	return outbox.Accepted{ID: e.ID, CreatedAt: created, Duplicate: true}, nil
}

// insertOutbox appends a row and returns its position.
func insertOutbox(w *session, row outbox.OutboxRow) (int64, error) {
	var args any
	if row.Kind == outbox.OutboxCommand {
		args = toJSON(row.Command)
	}
	return w.insert(`
		INSERT INTO waybill_outbox (shard, kind, tenant, event, endpoint, args)
		VALUES (?, ?, ?, ?, ?, ?)`,
		int64(row.Shard), int64(row.Kind), int64(row.Tenant), idOrNull(row.Event), idOrNull(row.Endpoint), args)
}

// blob keeps no bytes apart from NULL: the driver stores a nil slice as NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
