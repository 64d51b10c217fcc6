// Package pgxtx lets pgx's own transactions, connections and pools be used where package waybill
// wants a database/sql one.
//
//	tx, err := pool.Begin(ctx)
//	…
//	id, err := waybill.Publish(ctx, pgxtx.Wrap(tx), event)
//	…
//	err = tx.Commit(ctx)
package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is what is asked of pgx: a pgx.Tx, a *pgx.Conn, a *pgxpool.Pool, a *pgxpool.Conn.
// With a pool, or a connection that is not in a transaction, an event has a transaction of its
// own.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tx is a wrapped Querier. It is as safe for concurrent use as what it wraps, and neither
// begins nor ends anything.
type Tx struct {
	q Querier
}

// Wrap returns q in the shape waybill.Publish and waybill.PublishAll take.
func Wrap(q Querier) Tx { return Tx{q} }

// QueryRowContext runs the statement through the wrapped Querier, in its query mode.
func (t Tx) QueryRowContext(ctx context.Context, query string, args ...any) pgx.Row {
	return t.q.QueryRow(ctx, query, args...)
}
