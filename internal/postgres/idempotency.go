package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// idempotencyTakeover is after how long a request whose end was never written is taken for dead.
const idempotencyTakeover = 60 * time.Second

// BeginIdempotent implements outbox.Idempotency.
func (s *Store) BeginIdempotent(ctx context.Context, scope outbox.TenantRef, key string, digest [32]byte, now time.Time) (outbox.IdempotencyState, []byte, error) {
	state := outbox.IdempotencyRunning
	var sealed []byte
	err := s.edit(ctx, func(tx pgx.Tx) error {
		// Nothing locks a key against an event that is being stored under it at this moment: two
		// different requests with one key at once are then both run.
		var event bool
		err := tx.QueryRow(ctx, `
			SELECT EXISTS (
				SELECT
				FROM waybill.idempotency
				WHERE shard = $1 AND tenant = $2 AND kind = 0 AND key = $3
					AND created_at >= $4::timestamptz - (SELECT idempotency_retention FROM waybill.setting)
			)`,
			int16(scope.Shard), int64(scope.ID), key, now).Scan(&event)
		if err != nil {
			return err
		}
		if event {
			state = outbox.IdempotencyMismatch
			return nil
		}
		tag, err := tx.Exec(ctx, `
			INSERT INTO waybill.idempotency AS old (shard, tenant, kind, key, digest, created_at)
			VALUES ($1, $2, 1, $3, $4, $5)
			ON CONFLICT (shard, tenant, kind, key) DO UPDATE
			SET digest = excluded.digest, answer = NULL, created_at = excluded.created_at
			WHERE old.answer IS NULL AND old.digest = excluded.digest AND old.created_at < $6
				OR old.created_at < excluded.created_at - (SELECT idempotency_retention FROM waybill.setting)`,
			int16(scope.Shard), int64(scope.ID), key, digest[:], now, now.Add(-idempotencyTakeover))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 1 {
			state = outbox.IdempotencyNew
			return nil
		}
		var held []byte
		err = tx.QueryRow(ctx, `
			SELECT digest, answer
			FROM waybill.idempotency
			WHERE shard = $1 AND tenant = $2 AND kind = 1 AND key = $3`,
			int16(scope.Shard), int64(scope.ID), key).Scan(&held, &sealed)
		switch {
		case err != nil:
			return err
		case !bytes.Equal(held, digest[:]):
			state = outbox.IdempotencyMismatch
		case sealed != nil:
			state = outbox.IdempotencyDone
		}
		return nil
	})
	if err != nil || state != outbox.IdempotencyDone {
		return state, nil, err
	}
	var answer []byte
	if err := s.open(sealed, answerPlace(scope, key), &answer); err != nil {
		return state, nil, fmt.Errorf("stored answer: %w", err)
	}
	return state, answer, nil
}

// EndIdempotent implements outbox.Idempotency.
func (s *Store) EndIdempotent(ctx context.Context, scope outbox.TenantRef, key string, answer []byte) error {
	sealed, err := s.seal(answer, answerPlace(scope, key))
	if err != nil {
		return err
	}
	return s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			UPDATE waybill.idempotency
			SET answer = $4
			WHERE shard = $1 AND tenant = $2 AND kind = 1 AND key = $3`,
			int16(scope.Shard), int64(scope.ID), key, sealed)
		return nil
	})
}

// DropIdempotent implements outbox.Idempotency. An answer that was stored stays.
func (s *Store) DropIdempotent(ctx context.Context, scope outbox.TenantRef, key string) error {
	return s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			DELETE FROM waybill.idempotency
			WHERE shard = $1 AND tenant = $2 AND kind = 1 AND key = $3 AND answer IS NULL`,
			int16(scope.Shard), int64(scope.ID), key)
		return nil
	})
}

func answerPlace(scope outbox.TenantRef, key string) string {
	return fmt.Sprintf("tenant %d answer %s", scope.ID, key)
}
