package waybill

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// publishSQLite writes the events by plain inserts: SQLite has no stored functions. All or none
// of them happen, whatever tx is.
func publishSQLite[R Row](ctx context.Context, tx Tx[R], events []Event) ([]string, error) {
	beginner, ok := any(tx).(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	})
	if !ok {
		return publishInSavepoint(ctx, tx, events)
	}
	own, err := beginner.BeginTx(ctx, nil)
	if err != nil {
		if conn, ok := any(tx).(*sql.Conn); ok && ctx.Err() == nil {
			// The caller began by hand (BEGIN IMMEDIATE on a *sql.Conn), and SQLite refuses a second.
			return publishInSavepoint(ctx, conn, events)
		}
		return nil, fmt.Errorf("waybill: publish: %w", err)
	}
	defer own.Rollback()
	ids, err := insertAll(ctx, own, events)
	if err != nil {
		return nil, err
	}
	if err := own.Commit(); err != nil {
		return nil, fmt.Errorf("waybill: publish: %w", err)
	}
	return ids, nil
}

// publishInSavepoint leaves the caller's transaction as it was when an event is refused: SQLite
// lets it go on and commit, and half an event must not be in it.
func publishInSavepoint[R Row](ctx context.Context, tx Tx[R], events []Event) ([]string, error) {
	if err := exec(ctx, tx, `SAVEPOINT waybill_publish`); err != nil {
		return nil, fmt.Errorf("waybill: publish: %w", err)
	}
	ids, err := insertAll(ctx, tx, events)
	if err == nil {
		err = exec(ctx, tx, `RELEASE waybill_publish`)
	}
	if err != nil {
		// Even where ctx has ended. If SQLite rolled back the whole transaction by itself (an
		// interrupted write, a full disk), the savepoint is gone with all there was to undo.
		undo := context.WithoutCancel(ctx)
		if exec(undo, tx, `ROLLBACK TO waybill_publish`) == nil {
			// Left open it would do no harm: it holds nothing, and ends with the transaction.
			_ = exec(undo, tx, `RELEASE waybill_publish`)
		}
		return nil, err
	}
	return ids, nil
}

// exec runs a statement that answers nothing through the one method a Tx has.
func exec[R Row](ctx context.Context, tx Tx[R], statement string, args ...any) error {
	err := tx.QueryRowContext(ctx, statement, args...).Scan()
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

func insertAll[R Row](ctx context.Context, tx Tx[R], events []Event) ([]string, error) {
	w, err := newSQLiteWriter(ctx, tx, time.Now())
	if err != nil {
		return nil, fmt.Errorf("waybill: publish: %w", err)
	}
	ids := make([]string, len(events))
	for i := range events {
		id, err := w.insert(ctx, &events[i])
		if err != nil {
			if len(events) > 1 {
				err = fmt.Errorf("event %d: %w", i, err)
			}
			return nil, err
		}
		ids[i] = id.String()
	}
	return ids, nil
}

// sqliteWriter writes events in one transaction, which holds the database's write lock: what it
// reads cannot change before it writes.
type sqliteWriter[R Row] struct {
	tx      Tx[R]
	now     time.Time
	tenants map[string]outbox.TenantRef // seen in this transaction

	maxPayload           int
	createTenants        bool
	retention            time.Duration
	idempotencyRetention time.Duration
}

func newSQLiteWriter[R Row](ctx context.Context, tx Tx[R], now time.Time) (*sqliteWriter[R], error) {
	// An update of nothing takes the write lock, waiting for it as long as busy_timeout says. If
	// the first statement were a read, taking the lock later would fail as soon as anybody wrote
	// in between.
	if err := exec(ctx, tx, `UPDATE waybill_setting SET one = 1 WHERE one <> 1`); err != nil {
		if strings.Contains(err.Error(), "database is locked") {
			err = fmt.Errorf("%w (begin the transaction with BEGIN IMMEDIATE: one that read first cannot write after others wrote)", err)
		}
		return nil, err
	}
	w := &sqliteWriter[R]{tx: tx, now: now, tenants: map[string]outbox.TenantRef{}}
	var unknownTenant string
	var retention, idempotencyRetention int64 // microseconds
	err := tx.QueryRowContext(ctx, `
		SELECT max_payload, unknown_tenant, retention, idempotency_retention
		FROM waybill_setting`,
	).Scan(&w.maxPayload, &unknownTenant, &retention, &idempotencyRetention)
	w.createTenants = unknownTenant == "create"
	w.retention = time.Duration(retention) * time.Microsecond
	w.idempotencyRetention = time.Duration(idempotencyRetention) * time.Microsecond
	return w, err
}

// insert writes one event and its outbox row, and returns the event's id, or that of the earlier
// event it turns out to be.
func (w *sqliteWriter[R]) insert(ctx context.Context, e *Event) (outbox.EventID, error) {
	if len(e.Payload) > w.maxPayload {
		return outbox.EventID{}, fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, len(e.Payload), w.maxPayload)
	}
	event := outbox.NewEvent{
		Event: outbox.Event{
			ID:          outbox.NewEventID(w.now),
			Type:        e.Type,
			OrderingKey: e.OrderingKey,
			Payload:     e.Payload,
			SHA256:      sha256.Sum256(e.Payload),
			CreatedAt:   w.now,
		},
		IdempotencyKey: e.IdempotencyKey,
	}
	if e.ID != "" {
		id, err := w.chosenID(e.ID)
		if err != nil {
			return outbox.EventID{}, err
		}
		event.ID, event.Chosen = id, true
	}
	tenant, err := w.tenant(ctx, e.Tenant)
	if err != nil {
		return outbox.EventID{}, err
	}
	event.Tenant = tenant

	// The key is looked at first: what it stands for decides, whatever id comes with it again.
	if event.IdempotencyKey != "" {
		id, found, err := w.eventOfKey(ctx, &event)
		if err != nil || found {
			return id, err
		}
	}
	stored := false
	if event.Chosen {
		if stored, err = w.isStored(ctx, &event); err != nil {
			return outbox.EventID{}, err
		}
	}
	if !stored {
		if err := w.writeEvent(ctx, &event, e.Metadata); err != nil {
			return outbox.EventID{}, err
		}
	}
	if event.IdempotencyKey != "" {
		if err := w.writeKey(ctx, &event); err != nil {
			return outbox.EventID{}, err
		}
	}
	return event.ID, nil
}

// chosenID reads an id the caller chose. Its time decides when the event's row is old, so it must
// be near now, and never so old that retention would soon take the event away.
func (w *sqliteWriter[R]) chosenID(s string) (outbox.EventID, error) {
	id, err := outbox.ParseEventID(s)
	if err != nil {
		return id, fmt.Errorf("%w: id: %w", ErrBadEvent, err)
	}
	past := min(outbox.ChosenIDPast, w.retention-24*time.Hour)
	if at := id.Time(); at.Before(w.now.Add(-past)) || at.After(w.now.Add(outbox.ChosenIDFuture)) {
		return id, fmt.Errorf("%w: id: its time is %s, which must lie between %s ago and %s ahead",
			ErrBadEvent, at.Format(time.RFC3339), past, outbox.ChosenIDFuture)
	}
	return id, nil
}

func (w *sqliteWriter[R]) tenant(ctx context.Context, key string) (outbox.TenantRef, error) {
	if known, ok := w.tenants[key]; ok {
		return known, nil
	}
	tenant := outbox.TenantRef{Shard: outbox.ShardOf(key)}
	err := w.tx.QueryRowContext(ctx, `SELECT id FROM waybill_tenant WHERE key = $1`, key).Scan(&tenant.ID)
	if errors.Is(err, sql.ErrNoRows) {
		if !w.createTenants {
			return tenant, fmt.Errorf("%w: %q", ErrUnknownTenant, key)
		}
		err = w.tx.QueryRowContext(ctx, `
			INSERT INTO waybill_tenant (shard, key, created_at, updated_at, resumed_at)
			VALUES ($1, $2, $3, $3, $3)
			RETURNING id`,
			tenant.Shard, key, w.now.UnixMicro(),
		).Scan(&tenant.ID)
	}
	if err != nil {
		return tenant, fmt.Errorf("waybill: publish: %w", err)
	}
	w.tenants[key] = tenant
	return tenant, nil
}

// eventOfKey finds the event the idempotency key stands for already, if any. One that has outlived
// its retention stands for nothing, whether or not it was cleared away yet.
func (w *sqliteWriter[R]) eventOfKey(ctx context.Context, e *outbox.NewEvent) (id outbox.EventID, found bool, err error) {
	var digest, event []byte
	err = w.tx.QueryRowContext(ctx, `
		SELECT digest, event
		FROM waybill_idempotency
		WHERE tenant = $1 AND key = $2 AND created_at >= $3`,
		e.Tenant.ID, e.IdempotencyKey, w.now.Add(-w.idempotencyRetention).UnixMicro(),
	).Scan(&digest, &event)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, false, nil
	case err != nil:
		return id, false, fmt.Errorf("waybill: publish: %w", err)
	case [32]byte(digest) != e.Digest():
		return id, false, fmt.Errorf("%w: the idempotency key", ErrIdempotencyConflict)
	}
	return outbox.EventID(event), true, nil
}

// isStored reports whether the event exists under its chosen id.
func (w *sqliteWriter[R]) isStored(ctx context.Context, e *outbox.NewEvent) (bool, error) {
	var eventType string
	var digest []byte
	err := w.tx.QueryRowContext(ctx, `
		SELECT type, sha256
		FROM waybill_event
		WHERE shard = $1 AND tenant = $2 AND id = $3`,
		e.Tenant.Shard, e.Tenant.ID, e.ID[:],
	).Scan(&eventType, &digest)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("waybill: publish: %w", err)
	case eventType != e.Type || [32]byte(digest) != e.SHA256:
		return false, fmt.Errorf("%w: the id", ErrIdempotencyConflict)
	}
	return true, nil
}

// writeEvent writes the event and asks for it to be routed.
func (w *sqliteWriter[R]) writeEvent(ctx context.Context, e *outbox.NewEvent, metadata map[string]string) error {
	metadataJSON, err := metadataText(metadata)
	if err != nil {
		return err
	}
	err = exec(ctx, w.tx, `
		INSERT INTO waybill_event (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		e.Tenant.Shard, e.Tenant.ID, e.ID[:], e.Type, e.OrderingKey, metadataJSON, e.Payload, e.SHA256[:], e.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("waybill: publish: %w", err)
	}
	err = exec(ctx, w.tx, `
		INSERT INTO waybill_outbox (shard, kind, tenant, event)
		VALUES ($1, $2, $3, $4)`,
		e.Tenant.Shard, outbox.OutboxEvent, e.Tenant.ID, e.ID[:])
	if err != nil {
		return fmt.Errorf("waybill: publish: %w", err)
	}
	return nil
}

// writeKey remembers what the idempotency key now stands for, in place of what it stood for before
// its retention was over.
func (w *sqliteWriter[R]) writeKey(ctx context.Context, e *outbox.NewEvent) error {
	digest := e.Digest()
	err := exec(ctx, w.tx, `
		INSERT OR REPLACE INTO waybill_idempotency (shard, tenant, key, digest, event, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)`,
		e.Tenant.Shard, e.Tenant.ID, e.IdempotencyKey, digest[:], e.ID[:], e.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("waybill: publish: %w", err)
	}
	return nil
}
