package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-dev/waybill/receive"
)

// schemaSQLite: times and lengths are microseconds.
const schemaSQLite = `
-- One row for each event. key is the hash of the columns from source to id_digest.
CREATE TABLE IF NOT EXISTS waybill_receive_event (
    key          BLOB PRIMARY KEY CHECK (length(key) = 32),
    source       TEXT    NOT NULL,
    account      BLOB    NOT NULL,
    id           BLOB    NOT NULL,
    place        INTEGER NOT NULL,
    id_digest    BLOB,
    state        INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- free, held, done, dead
    token        BLOB CHECK (length(token) = 16),                -- of the last run
    due          INTEGER NOT NULL, -- held: the lease's end; free: not to be taken before
    fence        INTEGER NOT NULL DEFAULT 0,
    run          INTEGER NOT NULL DEFAULT 0,
    crashes      INTEGER NOT NULL DEFAULT 0,
    received_at  INTEGER NOT NULL,
    expires_at   INTEGER, -- done: forgotten from then on
    ended_at     INTEGER, -- done or dead
    reason       TEXT,    -- the last error, or why it is dead
    reply_status INTEGER,
    reply_type   TEXT,
    reply_body   BLOB,
    digest       BLOB NOT NULL CHECK (length(digest) = 32),
    topic        TEXT NOT NULL DEFAULT '',
    header       TEXT,
    body         BLOB, -- NULL: only claimed, the provider has it
    of           INTEGER NOT NULL DEFAULT 1,
    id_signed    INTEGER NOT NULL DEFAULT 0,
    sent_at      INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS waybill_receive_event_due ON waybill_receive_event (source, due) WHERE state < 2 AND body IS NOT NULL;
CREATE INDEX IF NOT EXISTS waybill_receive_event_dead ON waybill_receive_event (source, ended_at, key) WHERE state = 3;
CREATE INDEX IF NOT EXISTS waybill_receive_event_done ON waybill_receive_event (expires_at) WHERE state = 2;
CREATE INDEX IF NOT EXISTS waybill_receive_event_claimed ON waybill_receive_event (due) WHERE state < 2 AND body IS NULL;

-- Bodies that came under the key of another event.
CREATE TABLE IF NOT EXISTS waybill_receive_other_body (
    key         BLOB NOT NULL,
    digest      BLOB NOT NULL,
    header      TEXT,
    body        BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (key, digest)
) STRICT;

-- The newest version seen of each object, and how many older ones came after it.
CREATE TABLE IF NOT EXISTS waybill_receive_version (
    object TEXT PRIMARY KEY,
    at     INTEGER NOT NULL,
    tie    BLOB    NOT NULL,
    stale  INTEGER NOT NULL DEFAULT 0
) STRICT;
`

// Check implements receive.Checker: whether the tables are there, whether a commit waits for the
// disk, and whether readers wait for the writer.
func (l lite) Check(ctx context.Context) ([]receive.Problem, error) {
	var tables, synchronous int
	var journal string
	if err := errors.Join(
		l.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name IN ('waybill_receive_event', 'waybill_receive_version')").Scan(&tables),
		l.db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous),
		l.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal),
	); err != nil {
		return nil, err
	}
	var problems []receive.Problem
	if tables < 2 {
		problems = append(problems, receive.Problem{
			Rule: receive.Incomplete, Harm: receive.Loses,
			Detail: "the tables waybill_receive_… are not there",
			Remedy: "Run SchemaSQLite with your migrations, or call Migrate once",
		})
	}
	if synchronous < 2 || journal == "memory" || journal == "off" {
		problems = append(problems, receive.Problem{
			Rule: receive.NotDurable, Harm: receive.Loses,
			Detail: fmt.Sprintf("journal_mode is %s and synchronous is %d: a commit is answered before the disk has it, and the provider is told that the event is safe", journal, synchronous),
			Remedy: "Open the database with journal_mode=WAL and synchronous=FULL",
		})
	}
	if journal != "wal" {
		problems = append(problems, receive.Problem{
			Rule: receive.Unchecked, Harm: receive.Told,
			Detail: fmt.Sprintf("journal_mode is %s: whoever reads waits for a handler's transaction", journal),
			Remedy: "Open the database with journal_mode=WAL",
		})
	}
	return problems, nil
}
