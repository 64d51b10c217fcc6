// Package pgsql keeps received events in PostgreSQL, whatever the driver: receive/pgstore lends it
// pgx, receive/sqlstore database/sql.
//
// The state machine is that of receive.State, said in SQL. Three things are not obvious from it.
//
// Nothing waits for a row that a caller's transaction has locked: a claim takes the row with SKIP
// LOCKED, and where there is none yet, it inserts only with an advisory lock in hand that it did
// not have to wait for. ON CONFLICT DO UPDATE would wait for as long as that transaction is open.
//
// A statement sees one moment, and a row that another one committed meanwhile is not in it. Where a
// statement finds nothing to change, the row is therefore read again by a second one.
//
// Time is clock_timestamp(): in a caller's transaction now() is its beginning.
package pgsql

// Schema makes the tables. Running it again does no harm.
const Schema = `
CREATE SCHEMA IF NOT EXISTS waybill_receive;

-- One row for each event. key is the hash of the columns from source to id_digest.
CREATE TABLE IF NOT EXISTS waybill_receive.event (
    key          bytea PRIMARY KEY CHECK (length(key) = 32),
    source       text NOT NULL,
    account      bytea NOT NULL,
    id           bytea NOT NULL,
    place        integer NOT NULL,
    id_digest    bytea,
    state        smallint NOT NULL CHECK (state BETWEEN 0 AND 3), -- free, held, done, dead
    token        bytea CHECK (length(token) = 16),                -- of the last run
    due          timestamptz NOT NULL, -- held: the lease's end; free: not to be taken before
    fence        bigint NOT NULL DEFAULT 0,
    run          integer NOT NULL DEFAULT 0,
    crashes      integer NOT NULL DEFAULT 0,
    received_at  timestamptz NOT NULL,
    expires_at   timestamptz, -- done: forgotten from then on
    ended_at     timestamptz, -- done or dead
    reason       text,        -- the last error, or why it is dead
    reply_status integer,
    reply_type   text,
    reply_body   bytea,
    digest       bytea NOT NULL CHECK (length(digest) = 32),
    topic        text NOT NULL DEFAULT '',
    header       text,
    body         bytea, -- NULL: only claimed, the provider has it
    of           integer NOT NULL DEFAULT 1,
    id_signed    boolean NOT NULL DEFAULT false,
    sent_at      timestamptz
);
CREATE INDEX IF NOT EXISTS event_due ON waybill_receive.event (source, due) WHERE state < 2 AND body IS NOT NULL;
CREATE INDEX IF NOT EXISTS event_dead ON waybill_receive.event (source, ended_at, key) WHERE state = 3;
CREATE INDEX IF NOT EXISTS event_done ON waybill_receive.event (expires_at) WHERE state = 2;
CREATE INDEX IF NOT EXISTS event_claimed ON waybill_receive.event (due) WHERE state < 2 AND body IS NULL;

-- Bodies that came under the key of another event.
CREATE TABLE IF NOT EXISTS waybill_receive.other_body (
    key         bytea NOT NULL REFERENCES waybill_receive.event (key) ON DELETE CASCADE,
    digest      bytea NOT NULL,
    header      text,
    body        bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key, digest)
);

-- The newest version seen of each object, and how many older ones came after it.
CREATE TABLE IF NOT EXISTS waybill_receive.version (
    object text PRIMARY KEY,
    at     bigint NOT NULL,
    tie    text NOT NULL COLLATE "C",
    stale  bigint NOT NULL DEFAULT 0
);
`
