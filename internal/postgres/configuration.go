package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// edit runs do in a transaction that thinks between its statements. An error that did not come
// from the database is returned as it is, with nothing written.
//
// What an author does is put on record in the same transaction (outbox.Audit).
func (s *Store) edit(ctx context.Context, do func(tx pgx.Tx) error) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return writeError(err, working, conn.Conn().IsClosed())
	}
	b := &pgx.Batch{}
	edits.queueSettings(b)
	err = tx.SendBatch(ctx, b).Close()
	if err == nil {
		err = do(tx)
	}
	if err == nil && s.by.Due() {
		b := &pgx.Batch{}
		queueNote(b, &s.by.Entry)
		err = tx.SendBatch(ctx, b).Close()
	}
	if err != nil {
		lost := conn.Conn().IsClosed()
		rollback(ctx, conn)
		if _, said := errors.AsType[*pgconn.PgError](err); said || lost {
			return writeError(err, working, lost)
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		lost := conn.Conn().IsClosed()
		rollback(ctx, conn)
		return writeError(err, committing, lost)
	}
	if s.by.Due() {
		s.by.Noted()
	}
	return nil
}

// violates reports whether an error is a duplicate in the named unique index.
func violates(err error, index string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "23505" && pgErr.ConstraintName == index
}

// countPending counts what a deletion leaves to be cancelled, at most limit.
func countPending(ctx context.Context, tx pgx.Tx, where string, limit int, args ...any) (int, error) {
	var n int
	err := tx.QueryRow(ctx, `
		SELECT count(*)
		FROM (
			SELECT
			FROM waybill.delivery
			WHERE `+where+`
			LIMIT $1
		) AS pending`,
		append([]any{limit}, args...)...).Scan(&n)
	return n, err
}

// insertCommand asks the shard's owner for something.
func insertCommand(ctx context.Context, tx pgx.Tx, tenant outbox.TenantRef, endpoint outbox.EndpointID, c outbox.Command) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO waybill.outbox (shard, kind, tenant, endpoint, args)
		VALUES ($1, 2, $2, $3, $4)`,
		int16(tenant.Shard), int64(tenant.ID), uuid(endpoint), c)
	return err
}

// WriteSettings implements outbox.Configuration.
func (s *Store) WriteSettings(ctx context.Context, v outbox.Settings) error {
	return s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			UPDATE waybill.setting
			SET max_payload = $1, retention = $2, idempotency_retention = $3, create_unknown_tenants = $4`,
			v.MaxPayload, v.Retention, v.IdempotencyRetention, v.CreateUnknownTenants)
		return nil
	})
}

// retryText is a retry policy as it is stored: seconds, as in the API. An absent field takes the
// wider policy's value; an empty list of statuses is a value.
type retryText struct {
	Initial  float64   `json:"initial_seconds,omitzero"`
	Max      float64   `json:"max_seconds,omitzero"`
	Window   float64   `json:"window_seconds,omitzero"`
	Attempts int       `json:"max_attempts,omitzero"`
	Statuses *[]string `json:"retry_statuses,omitempty"`
}

func storedRetry(p outbox.RetryPolicy) retryText {
	t := retryText{
		Initial:  p.Initial.Seconds(),
		Max:      p.Max.Seconds(),
		Window:   p.Window.Seconds(),
		Attempts: p.MaxAttempts,
	}
	if p.RetryStatuses != nil {
		t.Statuses = &p.RetryStatuses
	}
	return t
}

func (t retryText) policy() outbox.RetryPolicy {
	p := outbox.RetryPolicy{
		Initial:     seconds(t.Initial),
		Max:         seconds(t.Max),
		Window:      seconds(t.Window),
		MaxAttempts: t.Attempts,
	}
	if t.Statuses != nil {
		p.RetryStatuses = *t.Statuses
	}
	return p
}

func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second)).Round(time.Microsecond)
}
