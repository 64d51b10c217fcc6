-- Times and lengths of time are INTEGER microseconds (since 1970 for times), ids 16-byte BLOBs,
-- digests 32-byte BLOBs, payloads the publisher's own bytes, headers and the like JSON text.
--
-- A publisher may write from a transaction of its own, on any connection to this file. It reads
-- waybill_setting and waybill_tenant and inserts, with BEGIN IMMEDIATE:
--
--   waybill_event       (shard, tenant, id, type, ordering_key, metadata, sha256, created_at, payload)
--   waybill_outbox      (shard, kind = 0, tenant, event)            pos is given by the database
--   waybill_idempotency (shard, tenant, key, digest, event, created_at)     only with a key
--
-- and, where unknown_tenant is 'create', waybill_tenant (shard, key, created_at, updated_at,
-- resumed_at). shard is the first byte of SHA-256 over the tenant's key; digest is SHA-256 over
-- the type, a zero byte and the payload's SHA-256.

-- +goose Up

-- What publishers must know; one row.
CREATE TABLE waybill_setting (
    one                   INTEGER PRIMARY KEY CHECK (one = 1),
    max_payload           INTEGER NOT NULL DEFAULT 262144 CHECK (max_payload > 0), -- bytes
    unknown_tenant        TEXT    NOT NULL DEFAULT 'reject' CHECK (unknown_tenant IN ('reject', 'create')),
    retention             INTEGER NOT NULL DEFAULT 2592000000000 CHECK (retention > 0),
    idempotency_retention INTEGER NOT NULL DEFAULT 86400000000 CHECK (idempotency_retention > 0)
) STRICT;

INSERT INTO waybill_setting (one) VALUES (1);

-- Configuration: nobody but people and the API write these two, so their triggers fire for
-- nothing else.
CREATE TABLE waybill_tenant (
    id            INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: a re-created key must not see old rows
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    key           TEXT    UNIQUE, -- NULL once deleted
    name          TEXT    NOT NULL DEFAULT '',
    weight        REAL    NOT NULL DEFAULT 1 CHECK (weight > 0),
    max_in_flight INTEGER NOT NULL DEFAULT 10 CHECK (max_in_flight > 0),
    state         TEXT    NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    egress        TEXT    NOT NULL DEFAULT 'public' CHECK (egress IN ('public', 'internal')),
    retry         TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(retry)),
    metadata      TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    max_endpoints INTEGER CHECK (max_endpoints >= 0),
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    resumed_at    INTEGER NOT NULL,
    deleted_at    INTEGER,
    CHECK ((key IS NULL) = (deleted_at IS NOT NULL))
) STRICT;

CREATE INDEX waybill_tenant_shard ON waybill_tenant (shard) WHERE deleted_at IS NULL;

CREATE TABLE waybill_endpoint (
    id            BLOB    PRIMARY KEY CHECK (length(id) = 16),
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant        INTEGER NOT NULL REFERENCES waybill_tenant (id),
    uid           TEXT,
    url           TEXT    NOT NULL,
    description   TEXT    NOT NULL DEFAULT '',
    metadata      TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    event_types   TEXT    NOT NULL DEFAULT '["*"]' CHECK (json_type(event_types) = 'array'),
    headers       BLOB, -- sealed
    secrets       BLOB, -- sealed
    max_in_flight INTEGER NOT NULL DEFAULT 0 CHECK (max_in_flight >= 0), -- 0: the tenant's
    timeout       INTEGER NOT NULL DEFAULT 10000000 CHECK (timeout > 0),
    state         TEXT    NOT NULL CHECK (state IN ('draft', 'active', 'paused', 'disabled')),
    state_reason  TEXT    CHECK (json_valid(state_reason)),
    retry         TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(retry)),
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    resumed_at    INTEGER NOT NULL,
    discarded_at  INTEGER,
    deleted_at    INTEGER,
    CHECK (deleted_at IS NULL OR (headers IS NULL AND secrets IS NULL))
) STRICT;

CREATE UNIQUE INDEX waybill_endpoint_uid ON waybill_endpoint (tenant, uid) WHERE uid IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX waybill_endpoint_tenant ON waybill_endpoint (tenant, id);
CREATE INDEX waybill_endpoint_shard ON waybill_endpoint (shard) WHERE deleted_at IS NULL;

-- The revision tells a shard's owner that its configuration changed, an edit by hand included.
CREATE TABLE waybill_shard_config (
    shard    INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    revision INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE waybill_node (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    beat       INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    draining   INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1))
) STRICT;

CREATE TABLE waybill_shard (
    shard    INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    node     BLOB    CHECK (length(node) = 16), -- NULL: nobody
    epoch    INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 1 CHECK (released IN (0, 1)), -- 0: its last owner did not give it up
    held     TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(held) = 'array') -- in flight when it was given up
) STRICT;

-- +goose StatementBegin
WITH RECURSIVE number (shard) AS (
    SELECT 0
    UNION ALL
    SELECT shard + 1 FROM number WHERE shard < 255
)
INSERT INTO waybill_shard_config (shard)
SELECT shard FROM number;
-- +goose StatementEnd

INSERT INTO waybill_shard (shard) SELECT shard FROM waybill_shard_config;

-- +goose StatementBegin
CREATE TRIGGER waybill_tenant_inserted AFTER INSERT ON waybill_tenant BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard = NEW.shard;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_tenant_updated AFTER UPDATE ON waybill_tenant BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard IN (OLD.shard, NEW.shard);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_tenant_removed AFTER DELETE ON waybill_tenant BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard = OLD.shard;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_tenant_resumed AFTER UPDATE OF state ON waybill_tenant
WHEN NEW.state = 'active' AND OLD.state <> 'active' BEGIN
    UPDATE waybill_tenant
    SET resumed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    WHERE id = NEW.id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_endpoint_inserted AFTER INSERT ON waybill_endpoint BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard = NEW.shard;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_endpoint_updated AFTER UPDATE ON waybill_endpoint BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard IN (OLD.shard, NEW.shard);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_endpoint_removed AFTER DELETE ON waybill_endpoint BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1 WHERE shard = OLD.shard;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_endpoint_resumed AFTER UPDATE OF state ON waybill_endpoint
WHEN NEW.state = 'active' AND OLD.state <> 'active' BEGIN
    UPDATE waybill_endpoint
    SET resumed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    WHERE id = NEW.id;
END;
-- +goose StatementEnd

-- What happened; never changed. No foreign key to the tenant: a history outlives it.
CREATE TABLE waybill_event (
    shard        INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant       INTEGER NOT NULL,
    id           BLOB    NOT NULL CHECK (length(id) = 16),
    type         TEXT    NOT NULL CHECK (length(type) BETWEEN 1 AND 128),
    ordering_key TEXT    NOT NULL DEFAULT '',
    metadata     TEXT    CHECK (json_valid(metadata)),
    sha256       BLOB    NOT NULL CHECK (length(sha256) = 32),
    created_at   INTEGER NOT NULL,
    payload      BLOB    NOT NULL, -- last: what lies behind a large value is slow to reach
    PRIMARY KEY (shard, tenant, id)
) STRICT;

-- Finds an event of an unknown tenant, what is old enough to go, and counts a day without
-- touching the payloads.
CREATE INDEX waybill_event_id ON waybill_event (id, shard);

-- The one way into a shard's owner, in order of acceptance. AUTOINCREMENT: a position is never
-- given twice, else a reader that remembers what it took would pass over a newer row.
CREATE TABLE waybill_outbox (
    pos      INTEGER PRIMARY KEY AUTOINCREMENT,
    shard    INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    kind     INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 2), -- 0 event, 1 replay, 2 command
    tenant   INTEGER NOT NULL,
    event    BLOB    CHECK (length(event) = 16),
    endpoint BLOB    CHECK (length(endpoint) = 16),
    after    BLOB    CHECK (length(after) = 16), -- the last endpoint an event is planned for already
    args     TEXT    CHECK (json_valid(args)),
    CHECK (CASE kind
        WHEN 0 THEN event IS NOT NULL AND endpoint IS NULL AND args IS NULL
        WHEN 1 THEN event IS NOT NULL AND endpoint IS NOT NULL AND args IS NULL
        ELSE event IS NULL AND args IS NOT NULL
    END)
) STRICT;

CREATE INDEX waybill_outbox_shard ON waybill_outbox (shard, pos);

-- Publish keys: which event a key made, and from what.
CREATE TABLE waybill_idempotency (
    shard      INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant     INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    event      BLOB    NOT NULL CHECK (length(event) = 16),
    created_at INTEGER NOT NULL, -- when the key was used
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX waybill_idempotency_age ON waybill_idempotency (created_at);

-- Answers of the other POST requests; tenant 0 is the operator.
CREATE TABLE waybill_request (
    tenant     INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    answer     BLOB, -- sealed; NULL while the request runs
    claimed_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX waybill_request_age ON waybill_request (claimed_at);

-- Live work only: a row goes when its delivery ends.
CREATE TABLE waybill_delivery (
    dlv          BLOB    NOT NULL PRIMARY KEY CHECK (length(dlv) = 16),
    shard        INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant       INTEGER NOT NULL,
    endpoint     BLOB    NOT NULL CHECK (length(endpoint) = 16),
    event        BLOB    NOT NULL CHECK (length(event) = 16),
    event_type   TEXT    NOT NULL,
    sequence     INTEGER NOT NULL CHECK (sequence >= 1),
    ordering_key TEXT    NOT NULL DEFAULT '',
    round        INTEGER NOT NULL DEFAULT 0 CHECK (round >= 0),
    attempt      INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    round_start  INTEGER NOT NULL DEFAULT 0,
    lane         INTEGER NOT NULL DEFAULT 0 CHECK (lane IN (0, 1)), -- 0 live, 1 replay
    next_at      INTEGER NOT NULL,
    sendable_at  INTEGER NOT NULL,
    planned_at   INTEGER NOT NULL, -- the first time, over all rounds
    CHECK (round_start BETWEEN 0 AND attempt),
    CHECK (lane = 0 OR round > 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX waybill_delivery_due ON waybill_delivery (shard, endpoint, lane, next_at, dlv);
CREATE INDEX waybill_delivery_tenant ON waybill_delivery (tenant, dlv);

-- Everything that ended undelivered, until it is replayed or its retention is over.
CREATE TABLE waybill_dead_letter (
    dlv          BLOB    NOT NULL PRIMARY KEY CHECK (length(dlv) = 16),
    shard        INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant       INTEGER NOT NULL,
    endpoint     BLOB    NOT NULL CHECK (length(endpoint) = 16),
    event        BLOB    NOT NULL CHECK (length(event) = 16),
    event_type   TEXT    NOT NULL,
    sequence     INTEGER NOT NULL CHECK (sequence >= 1),
    ordering_key TEXT    NOT NULL DEFAULT '',
    round        INTEGER NOT NULL CHECK (round >= 0),
    attempt      INTEGER NOT NULL CHECK (attempt >= 0),
    round_start  INTEGER NOT NULL,
    lane         INTEGER NOT NULL CHECK (lane IN (0, 1)),
    sendable_at  INTEGER NOT NULL,
    planned_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('dead', 'cancelled')),
    reason       TEXT    NOT NULL CHECK (reason IN ('permanent', 'exhausted', 'expired', 'poison', 'cancelled')),
    kind         TEXT    NOT NULL DEFAULT '',
    message      TEXT    NOT NULL DEFAULT '',
    status_code  INTEGER NOT NULL DEFAULT 0, -- the last answer's
    at           INTEGER NOT NULL,
    CHECK ((state = 'cancelled') = (reason = 'cancelled'))
) STRICT, WITHOUT ROWID;

CREATE INDEX waybill_dead_letter_tenant ON waybill_dead_letter (tenant, dlv);
CREATE INDEX waybill_dead_letter_age ON waybill_dead_letter (at);

-- Every try. final: the try that ended its delivery's round.
CREATE TABLE waybill_attempt (
    id               BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    shard            INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    dlv              BLOB    NOT NULL CHECK (length(dlv) = 16),
    tenant           INTEGER NOT NULL,
    endpoint         BLOB    NOT NULL CHECK (length(endpoint) = 16),
    event            BLOB    NOT NULL CHECK (length(event) = 16),
    event_type       TEXT    NOT NULL,
    sequence         INTEGER NOT NULL,
    round            INTEGER NOT NULL,
    n                INTEGER NOT NULL CHECK (n >= 1), -- over all rounds
    trigger          TEXT    NOT NULL CHECK (trigger IN ('schedule', 'replay', 'probe', 'test')),
    outcome          TEXT    NOT NULL CHECK (outcome IN ('delivered', 'transient', 'permanent')),
    final            INTEGER NOT NULL CHECK (final IN (0, 1)),
    finished_at      INTEGER NOT NULL,
    at               INTEGER NOT NULL,
    duration         INTEGER NOT NULL,
    dns              INTEGER NOT NULL,
    connect          INTEGER NOT NULL,
    tls              INTEGER NOT NULL,
    first_byte       INTEGER NOT NULL,
    url              TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    message          TEXT    NOT NULL,
    status_code      INTEGER NOT NULL,
    request_headers  BLOB    NOT NULL, -- names and values in turn, each behind its length: they are bytes, not text
    request_bytes    INTEGER NOT NULL,
    response_headers BLOB    NOT NULL,
    truncated        INTEGER NOT NULL CHECK (truncated IN (0, 1)),
    response_body    BLOB
) STRICT;

CREATE INDEX waybill_attempt_delivery ON waybill_attempt (dlv, n);
-- What was delivered, for the lists of a tenant. Its endpoints' lists read it too, passing over
-- the others: an index of their own would cost every delivery more than it saves these.
CREATE INDEX waybill_attempt_delivered ON waybill_attempt (tenant, dlv) WHERE final = 1 AND outcome = 'delivered';

-- The next sequence number of each endpoint.
CREATE TABLE waybill_mark (
    endpoint BLOB    NOT NULL PRIMARY KEY CHECK (length(endpoint) = 16),
    shard    INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    next     INTEGER NOT NULL CHECK (next >= 1)
) STRICT, WITHOUT ROWID;

-- The books: what became of deliveries, per hour (per day once 48 hours old), and of events, per
-- day of the event's id. Counted from rows really written and deleted, in the same transaction.
CREATE TABLE waybill_ledger (
    shard     INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    at        INTEGER NOT NULL,
    planned   INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    dead      INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    replayed  INTEGER NOT NULL DEFAULT 0, -- planned once more; in planned too
    revived   INTEGER NOT NULL DEFAULT 0, -- of replayed, those that were a dead letter
    purged    INTEGER NOT NULL DEFAULT 0, -- dead letters whose retention is over
    PRIMARY KEY (shard, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE waybill_ledger_event (
    shard     INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    day       INTEGER NOT NULL, -- days since 1970; 0: all days whose events are no longer kept
    routed    INTEGER NOT NULL DEFAULT 0,
    matched   INTEGER NOT NULL DEFAULT 0,
    unmatched INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, day)
) STRICT, WITHOUT ROWID;

-- How far retention has come; one row. What is older may be gone, and is not proved.
CREATE TABLE waybill_retired (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    before_day INTEGER NOT NULL -- days since 1970
) STRICT;

INSERT INTO waybill_retired (one, before_day) VALUES (1, 0);

-- +goose Down
DROP TABLE waybill_retired;
DROP TABLE waybill_ledger_event;
DROP TABLE waybill_ledger;
DROP TABLE waybill_mark;
DROP TABLE waybill_attempt;
DROP TABLE waybill_dead_letter;
DROP TABLE waybill_delivery;
DROP TABLE waybill_request;
DROP TABLE waybill_idempotency;
DROP TABLE waybill_outbox;
DROP TABLE waybill_event;
DROP TABLE waybill_shard;
DROP TABLE waybill_node;
DROP TABLE waybill_endpoint;
DROP TABLE waybill_tenant;
DROP TABLE waybill_shard_config;
DROP TABLE waybill_setting;
