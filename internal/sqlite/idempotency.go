package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// claimTimeout is how long a request may run before its process is taken for dead.
const claimTimeout = time.Minute

var errNoKeyring = errors.New("sqlite: opened without a keyring")

// BeginIdempotent claims the key for a request.
func (s *Store) BeginIdempotent(ctx context.Context, scope outbox.TenantRef, key string, digest [32]byte, now time.Time) (state outbox.IdempotencyState, answer []byte, err error) {
	err = s.write(ctx, func(w *session) error {
		var first [32]byte
		var sealed []byte
		var claimed time.Time
		var event bool
		if err := w.get(`
			SELECT EXISTS (
				SELECT 1
				FROM waybill_idempotency
				WHERE tenant = ? AND key = ? AND created_at >= ? - (SELECT idempotency_retention FROM waybill_setting)
			)`,
			[]any{int64(scope.ID), key, micros(now)}, &event); err != nil {
			return err
		}
		if event {
			state = outbox.IdempotencyMismatch
			return nil
		}
		err := w.get(`
			SELECT digest, answer, claimed_at
			FROM waybill_request
			WHERE tenant = ? AND key = ? AND claimed_at >= ? - (SELECT idempotency_retention FROM waybill_setting)`,
			[]any{int64(scope.ID), key, micros(now)},
			digestTo{&first}, &sealed, timeTo{&claimed})
		switch {
		case errors.Is(err, sql.ErrNoRows): // or outlived its retention
			state = outbox.IdempotencyNew
			_, err := w.exec(`
				INSERT OR REPLACE INTO waybill_request (tenant, key, digest, claimed_at)
				VALUES (?, ?, ?, ?)`,
				int64(scope.ID), key, digest[:], micros(now))
			return err
		case err != nil:
			return err
		case first != digest:
			state = outbox.IdempotencyMismatch
			return nil
		case sealed != nil:
			state = outbox.IdempotencyDone
			answer, err = s.open(sealed, answerPlace(scope, key))
			return err
		case now.Sub(claimed) <= claimTimeout:
			state = outbox.IdempotencyRunning
			return nil
		}
		state = outbox.IdempotencyNew
		_, err = w.exec(`
			UPDATE waybill_request
			SET claimed_at = ?
			WHERE tenant = ? AND key = ?`,
			micros(now), int64(scope.ID), key)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return state, answer, nil
}

// EndIdempotent stores the answer.
func (s *Store) EndIdempotent(ctx context.Context, scope outbox.TenantRef, key string, answer []byte) error {
	sealed, err := s.seal(answer, answerPlace(scope, key))
	if err != nil {
		return err
	}
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			UPDATE waybill_request
			SET answer = ?
			WHERE tenant = ? AND key = ?`,
			sealed, int64(scope.ID), key)
		return err
	})
}

// DropIdempotent forgets the claim. An answer stays: it was given.
func (s *Store) DropIdempotent(ctx context.Context, scope outbox.TenantRef, key string) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			DELETE FROM waybill_request
			WHERE tenant = ? AND key = ? AND answer IS NULL`,
			int64(scope.ID), key)
		return err
	})
}

func answerPlace(scope outbox.TenantRef, key string) string {
	return fmt.Sprintf("answer of tenant %d to %s", scope.ID, key)
}

func (s *Store) seal(plain []byte, place string) ([]byte, error) {
	if s.keys == nil {
		return nil, errNoKeyring
	}
	return s.keys.Seal(plain, place), nil
}

func (s *Store) open(sealed []byte, place string) ([]byte, error) {
	if s.keys == nil {
		return nil, errNoKeyring
	}
	return s.keys.Open(sealed, place)
}
