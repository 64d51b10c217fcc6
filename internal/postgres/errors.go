package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// hidePassword stands in for an error about a connection string, which may quote it.
func hidePassword(error) error { return errors.New("not a PostgreSQL connection string") }

// phase says how far a transaction had come when something failed.
type phase int

const (
	// working: the commit had not been sent, so an end of the connection is a rollback.
	working phase = iota
	// committing: the commit was on the way.
	committing
)

// writeError says what a failed write means. lost tells that the connection broke; what the
// server itself said comes with its SQLSTATE.
func writeError(err error, at phase, lost bool) error {
	return &outbox.WriteError{Fault: classify(err, at, lost), Err: err}
}

func classify(err error, at phase, lost bool) outbox.Fault {
	pgErr, said := errors.AsType[*pgconn.PgError](err)
	switch {
	case pgconn.SafeToRetry(err):
		return outbox.FaultRetry
	case !said && lost && at == committing:
		return outbox.FaultUnknown
	case !said && lost:
		return outbox.FaultRetry
	case !said:
		return outbox.FaultBroken
	}
	switch pgErr.Code {
	case "55P03": // lock_not_available
		return outbox.FaultLocked
	case "40003": // statement_completion_unknown
		return outbox.FaultUnknown
	case "57P01", "57P02", "57P03", "57P04", "57P05": // the server ends the connection
		// It may say so between writing the commit and answering it.
		if at == committing {
			return outbox.FaultUnknown
		}
		return outbox.FaultRetry
	case "57014", // query_canceled: statement_timeout
		"25006", // read_only_sql_transaction: a standby, until the connection moves
		"25P03": // idle_in_transaction_session_timeout
		return outbox.FaultRetry
	}
	switch pgErr.Code[:2] {
	case "21", "22", "23": // what was sent cannot be stored
		return outbox.FaultRefused
	case "40", // serialization failure, deadlock
		"53", // out of disk, memory or connections
		"58": // the operating system failed
		return outbox.FaultRetry
	case "08":
		if at == committing {
			return outbox.FaultUnknown
		}
		return outbox.FaultRetry
	}
	return outbox.FaultBroken
}

// only is the row that a look-up by a key found.
func only[T any](list []T, err error) (T, error) {
	if err == nil && len(list) == 0 {
		err = outbox.ErrNotFound
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}
