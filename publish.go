package waybill

import (
	"context"
	"fmt"
)

// Tx is where an event is written: *sql.Tx, *sql.Conn, *sql.DB (the event then has a transaction
// of its own), anything else with their QueryRowContext, and pgx's transactions, connections and
// pools through pgxtx.Wrap. R follows from it and need not be written.
type Tx[R Row] interface {
	QueryRowContext(ctx context.Context, query string, args ...any) R
}

// Row is one row of an answer: *sql.Row or pgx.Row.
type Row interface {
	Scan(dest ...any) error
}

// Publish writes the event into tx and returns its id. The event is accepted, and will be
// delivered, once the caller has committed; see the package documentation for the promise.
//
// Where event.ID or event.IdempotencyKey meets an event with the same content, nothing is
// written and that event's id is returned. Errors wrap ErrUnknownTenant, ErrInvalidPayload,
// ErrPayloadTooLarge, ErrIdempotencyConflict or ErrBadEvent; any other is the database's.
func Publish[R Row](ctx context.Context, tx Tx[R], event Event) (id string, err error) {
	if err := event.check(); err != nil {
		return "", err
	}
	id, err = publishPostgres(ctx, tx, event)
	if err == nil {
		return id, nil
	}
	if !isSQLite(ctx, tx, err) {
		return "", refused(err)
	}
	ids, err := publishSQLite(ctx, tx, []Event{event})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// PublishAll writes the events into tx in their order, all or none, in one round trip, and
// returns their ids. Errors are those of Publish; where the faulty event is known, the text
// names its index.
func PublishAll[R Row](ctx context.Context, tx Tx[R], events []Event) (ids []string, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	for i := range events {
		if err := events[i].check(); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	ids, err = publishAllPostgres(ctx, tx, events)
	if err == nil {
		return ids, nil
	}
	if !isSQLite(ctx, tx, err) {
		return nil, refused(err)
	}
	return publishSQLite(ctx, tx, events)
}

// isSQLite finds out, after the PostgreSQL statement failed with err, whether tx is SQLite's.
// There is no asking a *sql.Tx for its driver. SQLite refuses the statement while it parses it,
// which leaves its transaction as it was, and then answers this question; an error that came
// from a PostgreSQL server has a SQLSTATE, and then nothing more is sent. Asking takes 6 µs of
// the 130 that publishing into SQLite takes, so the answer is not remembered anywhere.
func isSQLite[R Row](ctx context.Context, tx Tx[R], err error) bool {
	if sqlState(err) != "" || ctx.Err() != nil {
		return false
	}
	var version string
	return tx.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version) == nil
}
