package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var errClosed = errors.New("sqlite: the store is closed")

// domain errors mean the same to every caller; they reach it as they are.
var domain = []error{
	outbox.ErrNotFound,
	outbox.ErrConflict,
	outbox.ErrIDConflict,
	outbox.ErrIdempotencyMismatch,
	outbox.ErrEndpointGone,
	outbox.ErrPayloadGone,
	outbox.ErrFenced,
}

// classify says what a failed write means. Only SQLite's own errors and the store's become a
// *outbox.WriteError: whatever an edit callback returned is its caller's.
func classify(err error) error {
	if _, ok := errors.AsType[*outbox.WriteError](err); ok || slices.ContainsFunc(domain, func(d error) bool { return errors.Is(err, d) }) {
		return err
	}
	code, ok := codeOf(err)
	switch {
	case !ok && (errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone)):
		return &outbox.WriteError{Fault: outbox.FaultRetry, Err: err}
	case !ok:
		return err
	}
	fault := outbox.FaultBroken
	switch code {
	case codes.SQLITE_CONSTRAINT, codes.SQLITE_TOOBIG, codes.SQLITE_MISMATCH:
		fault = outbox.FaultRefused
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_INTERRUPT, codes.SQLITE_NOMEM, codes.SQLITE_PROTOCOL,
		codes.SQLITE_FULL, codes.SQLITE_IOERR, codes.SQLITE_CANTOPEN, codes.SQLITE_READONLY:
		// Nothing was written: the transaction is rolled back before anybody is answered.
		fault = outbox.FaultRetry
	}
	return &outbox.WriteError{Fault: fault, Err: err}
}

// notWritten is the answer to a caller whose work never began.
func notWritten(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errClosed) {
		return &outbox.WriteError{Fault: outbox.FaultRetry, Err: err}
	}
	return err
}

// codeOf returns SQLite's primary result code.
func codeOf(err error) (int, bool) {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return 0, false
	}
	return e.Code() & 0xff, true
}

// isDisk reports whether the file, not its content, is the trouble.
func isDisk(err error) bool {
	code, ok := codeOf(err)
	return ok && (code == codes.SQLITE_FULL || code == codes.SQLITE_IOERR || code == codes.SQLITE_CANTOPEN || code == codes.SQLITE_READONLY)
}

// isUnique reports whether a unique name is taken.
func isUnique(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && e.Code() == codes.SQLITE_CONSTRAINT_UNIQUE
}
