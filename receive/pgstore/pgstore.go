// Package pgstore keeps received events in PostgreSQL through pgx. It serves Inbox and Sync.
//
//	store := pgstore.New(pool)
//	inbox, err := receive.NewInbox(ctx, receive.InboxConfig{Source: source, Store: store, Handler: store.InTx(fulfil)})
//
// The tables are a schema of their own, waybill_receive; Schema is what your migrations run. Every
// call is one round trip, none waits for a row that another transaction has locked, and all time is
// the database's.
package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/pgsql"
)

// Schema makes the schema waybill_receive and its tables, for whatever runs your migrations.
// Running it again does no harm.
const Schema = pgsql.Schema

// Pool is a *pgxpool.Pool.
type Pool interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Migrate runs Schema.
func Migrate(ctx context.Context, pool Pool) error {
	_, err := pool.Exec(ctx, Schema)
	return err
}

type events = pgsql.Events

// Store is a receive.InboxStore and a receive.ClaimStore.
type Store struct {
	events
	pool Pool
}

var (
	_ receive.InboxStore = (*Store)(nil)
	_ receive.ClaimStore = (*Store)(nil)
	_ receive.Checker    = (*Store)(nil)
	_ receive.Pruner     = (*Store)(nil)
)

// New keeps events in pool's database.
func New(pool Pool) *Store { return &Store{events: events{DB: database{pool}}, pool: pool} }

// TxHandler is a Handler whose writes go into tx.
type TxHandler func(ctx context.Context, tx pgx.Tx, d *receive.Delivery) error

// InTx makes a Handler of h: begin, h, confirm, commit, all in one transaction. h's writes in tx
// happen exactly once within the receiver's Retain, whatever crashes, overruns or arrives twice. h
// must not commit or roll back. Messages to others belong in the same tx too (waybill.Publish,
// River's InsertTx), calls to others do not.
//
// A run that was overtaken is rolled back and is no success, also when h returned nil.
func (s *Store) InTx(h TxHandler) receive.Handler {
	return func(ctx context.Context, d *receive.Delivery) error {
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			return err
		}
		// Without the handler's context, which may be over: the rollback gives the connection back.
		defer tx.Rollback(context.WithoutCancel(ctx))
		if err := h(ctx, tx, d); err != nil {
			return err
		}
		if err := s.ConfirmTx(ctx, tx, d); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		d.Claim().Committed()
		return nil
	}
}

// ConfirmTx marks d as done inside tx, for handlers whose transaction is made elsewhere. Call it
// last, check its error, and commit: receive.ErrLeaseLost means that another run has the event, so
// roll back. The receiver looks in the database whether the commit happened; a handler's nil is not
// enough. d may be Degraded.
//
// It takes a transaction and nothing else. On a pool, done would be committed before the effects.
func (s *Store) ConfirmTx(ctx context.Context, tx pgx.Tx, d *receive.Delivery) error {
	return pgsql.Confirm(ctx, transaction{tx}, d)
}

// Newer reports whether v is newer than all that was seen of object, and remembers it, in tx. False:
// the event is stale or a repeat, so skip the write and return nil. Stale ones are counted, see
// Stale.
//
//	newer, err := pgstore.Newer(ctx, tx, "subscription "+sub.ID, receive.Version{At: event.Created, Tie: event.ID})
func Newer(ctx context.Context, tx pgx.Tx, object string, v receive.Version) (bool, error) {
	return pgsql.Newer(ctx, transaction{tx}, object, v)
}

// Stale counts the events that came after a newer one of the same object.
func (s *Store) Stale(ctx context.Context, object string) (int64, error) {
	return pgsql.Stale(ctx, database{s.pool}, object)
}

// database lends a pool to pgsql.
type database struct{ pool Pool }

func (d database) Query(ctx context.Context, sql string, args ...any) (pgsql.Rows, error) {
	rows, err := d.pool.Query(ctx, sql, args...)
	return answer{rows}, err
}

func (d database) Tx(ctx context.Context, do func(pgsql.Querier) error) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return do(transaction{tx}) })
}

// transaction lends a transaction to pgsql.
type transaction struct{ tx pgx.Tx }

func (t transaction) Query(ctx context.Context, sql string, args ...any) (pgsql.Rows, error) {
	rows, err := t.tx.Query(ctx, sql, args...)
	return answer{rows}, err
}

// answer is pgx.Rows with a Close like that of *sql.Rows.
type answer struct{ pgx.Rows }

// Close reads to the end; what went wrong there is Err's to say.
func (a answer) Close() error {
	a.Rows.Close()
	return nil
}
