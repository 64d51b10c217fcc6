// Package sqlstore keeps received events through database/sql, in PostgreSQL or SQLite. It serves
// Inbox and Sync.
//
//	store := sqlstore.SQLite(db)
//	inbox, err := receive.NewInbox(ctx, receive.InboxConfig{Source: source, Store: store, Handler: store.InTx(fulfil)})
//
// SchemaPostgres and SchemaSQLite are what your migrations run. On SQLite open the database with
// WAL, synchronous=FULL and a busy_timeout; the store looks at the first two when a receiver starts.
package sqlstore

import (
	"context"
	"database/sql"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/pgsql"
)

// The tables, for whatever runs your migrations. Running them again does no harm.
const (
	SchemaPostgres = pgsql.Schema
	SchemaSQLite   = schemaSQLite
)

// Postgres keeps events in db, which any PostgreSQL driver may serve.
func Postgres(db *sql.DB) *Store {
	return &Store{dialect: postgres{pgsql.Events{DB: pool{db}}, db}}
}

// SQLite keeps events in db, a file on this host. Only one transaction of the file writes at a
// time: a TxHandler that takes a second makes everybody wait for a second.
func SQLite(db *sql.DB) *Store { return &Store{dialect: lite{db}} }

// dialect is what the two databases do differently: everything but the handler's transaction.
type dialect interface {
	receive.InboxStore
	receive.ClaimStore
	receive.Checker
	receive.Pruner
	migrate(ctx context.Context) error
	// begin starts a handler's transaction.
	begin(ctx context.Context, c *receive.Claim) (*sql.Tx, error)
	confirm(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error
	newer(ctx context.Context, tx *sql.Tx, object string, v receive.Version) (bool, error)
	stale(ctx context.Context, object string) (int64, error)
}

// Store is a receive.InboxStore and a receive.ClaimStore.
type Store struct{ dialect }

var (
	_ receive.InboxStore = (*Store)(nil)
	_ receive.ClaimStore = (*Store)(nil)
	_ receive.Checker    = (*Store)(nil)
	_ receive.Pruner     = (*Store)(nil)
)

// Migrate makes the tables.
func (s *Store) Migrate(ctx context.Context) error { return s.migrate(ctx) }

// TxHandler is a Handler whose writes go into tx.
type TxHandler func(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error

// InTx makes a Handler of h: begin, h, confirm, commit, all in one transaction. h's writes in tx
// happen exactly once within the receiver's Retain, whatever crashes, overruns or arrives twice. h
// must not commit or roll back. Messages to others belong in the same tx too (waybill.Publish),
// calls to others do not.
//
// A run that was overtaken is rolled back and is no success, also when h returned nil.
func (s *Store) InTx(h TxHandler) receive.Handler {
	return func(ctx context.Context, d *receive.Delivery) error {
		tx, err := s.begin(ctx, d.Claim())
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := h(ctx, tx, d); err != nil {
			return err
		}
		if err := s.ConfirmTx(ctx, tx, d); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		d.Claim().Committed()
		return nil
	}
}

// ConfirmTx marks d as done inside tx, for handlers whose transaction is made elsewhere (on SQLite
// with BEGIN IMMEDIATE). Call it last, check its error, and commit: receive.ErrLeaseLost means that
// another run has the event, so roll back. The receiver looks in the database whether the commit
// happened; a handler's nil is not enough. d may be Degraded.
//
// It takes a transaction and nothing else. On a *sql.DB, done would be committed before the effects.
func (s *Store) ConfirmTx(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
	return s.confirm(ctx, tx, d)
}

// Newer reports whether v is newer than all that was seen of object, and remembers it, in tx. False:
// the event is stale or a repeat, so skip the write and return nil. Stale ones are counted, see
// Stale.
func (s *Store) Newer(ctx context.Context, tx *sql.Tx, object string, v receive.Version) (bool, error) {
	return s.newer(ctx, tx, object, v)
}

// Stale counts the events that came after a newer one of the same object.
func (s *Store) Stale(ctx context.Context, object string) (int64, error) { return s.stale(ctx, object) }

// postgres lends database/sql to pgsql.
type postgres struct {
	pgsql.Events
	db *sql.DB
}

func (p postgres) migrate(ctx context.Context) error {
	_, err := p.db.ExecContext(ctx, SchemaPostgres)
	return err
}

func (p postgres) begin(ctx context.Context, _ *receive.Claim) (*sql.Tx, error) {
	return p.db.BeginTx(ctx, nil)
}

func (p postgres) confirm(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
	return pgsql.Confirm(ctx, transaction{tx}, d)
}

func (p postgres) newer(ctx context.Context, tx *sql.Tx, object string, v receive.Version) (bool, error) {
	return pgsql.Newer(ctx, transaction{tx}, object, v)
}

func (p postgres) stale(ctx context.Context, object string) (int64, error) {
	return pgsql.Stale(ctx, pool{p.db}, object)
}

type pool struct{ db *sql.DB }

func (p pool) Query(ctx context.Context, sql string, args ...any) (pgsql.Rows, error) {
	return p.db.QueryContext(ctx, sql, args...)
}

func (p pool) Tx(ctx context.Context, do func(pgsql.Querier) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(transaction{tx}); err != nil {
		return err
	}
	return tx.Commit()
}

type transaction struct{ tx *sql.Tx }

func (t transaction) Query(ctx context.Context, sql string, args ...any) (pgsql.Rows, error) {
	return t.tx.QueryContext(ctx, sql, args...)
}
