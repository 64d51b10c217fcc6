package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// uniqueViolation is PostgreSQL's code for a row that is there already.
const uniqueViolation = "23505"

// plainly writes rows that are new, but for one case: an earlier run of the same call was committed,
// and its answer got lost. So the first run inserts them as if that could not be. If it meets one of
// them, nothing of it is written, and the write is run once more with passing over what is there.
//
// To ask for that at once (ON CONFLICT DO NOTHING) makes PostgreSQL look into every unique index
// beforehand, take a lock and log a confirmation for each row: a seventh of its work for an event.
func plainly(write func(passOver bool) error) error {
	err := write(false)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == uniqueViolation {
		err = write(true)
	}
	return err
}

// passing is the clause that passes over rows that are there already under a key, "" for any.
func passing(over bool, key string) string {
	if !over {
		return ""
	}
	return "ON CONFLICT " + key + " DO NOTHING"
}
