-- Jobs: replays and cancellations of many deliveries. A delivery that a replay planned says which
-- job it was, and what it was before, so that a job that is stopped can put it back.

-- +goose Up

CREATE TABLE waybill_job (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    shard       INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    tenant      INTEGER NOT NULL,
    tenant_key  TEXT    NOT NULL, -- the tenant's row may have lost it
    type        TEXT    NOT NULL CHECK (type IN ('replay', 'cancellation', 'delete_tenant')),
    filter      TEXT    NOT NULL CHECK (json_valid(filter)),
    reason      TEXT    NOT NULL DEFAULT '',
    rate        REAL    NOT NULL DEFAULT 0 CHECK (rate >= 0),
    key         TEXT,
    created_by  TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('running', 'stopping', 'done', 'cancelled', 'failed')),
    finished_at INTEGER,
    cursor      BLOB    CHECK (length(cursor) = 16),
    scanned     INTEGER NOT NULL DEFAULT 0 CHECK (scanned IN (0, 1)),
    matched     INTEGER NOT NULL,
    done        INTEGER NOT NULL DEFAULT 0,
    delivered   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    pending     INTEGER NOT NULL DEFAULT 0,
    CHECK ((finished_at IS NOT NULL) = (state NOT IN ('running', 'stopping')))
) STRICT, WITHOUT ROWID;
CREATE INDEX waybill_job_tenant ON waybill_job (tenant, id);
CREATE UNIQUE INDEX waybill_job_key ON waybill_job (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX waybill_job_running ON waybill_job (shard) WHERE state IN ('running', 'stopping');

-- Only a new table can have another CHECK: lane 2 is for test events, which wait for nobody.
ALTER TABLE waybill_delivery RENAME TO waybill_delivery_before;
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
    lane         INTEGER NOT NULL DEFAULT 0 CHECK (lane IN (0, 1, 2)), -- 0 live, 1 replay, 2 test
    next_at      INTEGER NOT NULL,
    sendable_at  INTEGER NOT NULL,
    planned_at   INTEGER NOT NULL, -- the first time, over all rounds
    turn_at      INTEGER CHECK ((next_at < 253402214400000000) = (coalesce(turn_at, 0) < 253402214400000000)),
    job          BLOB    CHECK (length(job) = 16), -- that planned it; NULL: none
    was          TEXT    CHECK (json_valid(was)),  -- what it was before; NULL: nothing, or no job planned it
    CHECK (round_start BETWEEN 0 AND attempt),
    CHECK (lane <> 1 OR round > 0)
) STRICT, WITHOUT ROWID;
INSERT INTO waybill_delivery
    (dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key,
    round, attempt, round_start, lane, next_at, sendable_at, planned_at, turn_at)
SELECT dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key,
    round, attempt, round_start, lane, next_at, sendable_at, planned_at, turn_at
FROM waybill_delivery_before;
DROP TABLE waybill_delivery_before;
CREATE INDEX waybill_delivery_due ON waybill_delivery (shard, endpoint, lane, next_at, dlv);
CREATE INDEX waybill_delivery_tenant ON waybill_delivery (tenant, dlv);
CREATE INDEX waybill_delivery_order ON waybill_delivery (shard, endpoint, ordering_key, sequence)
    WHERE turn_at IS NOT NULL;
CREATE UNIQUE INDEX waybill_delivery_turn ON waybill_delivery (shard, endpoint, ordering_key)
    WHERE turn_at IS NOT NULL AND next_at < 253402214400000000;
CREATE INDEX waybill_delivery_job ON waybill_delivery (job) WHERE job IS NOT NULL;

-- Likewise: an event with an endpoint is a test, for that one alone. Positions go on from where they
-- were.
ALTER TABLE waybill_outbox RENAME TO waybill_outbox_before;
DROP INDEX waybill_outbox_shard;
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
        WHEN 0 THEN event IS NOT NULL AND args IS NULL
        WHEN 1 THEN event IS NOT NULL AND endpoint IS NOT NULL AND args IS NULL
        ELSE event IS NULL AND args IS NOT NULL
    END)
) STRICT;
INSERT INTO waybill_outbox (pos, shard, kind, tenant, event, endpoint, after, args)
SELECT pos, shard, kind, tenant, event, endpoint, after, args
FROM waybill_outbox_before;
DELETE FROM sqlite_sequence WHERE name = 'waybill_outbox';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'waybill_outbox', seq
FROM sqlite_sequence
WHERE name = 'waybill_outbox_before';
DROP TABLE waybill_outbox_before;
CREATE INDEX waybill_outbox_shard ON waybill_outbox (shard, pos);

-- However a delivery ends, its job counts it. Where it ends undelivered its dead letter is there
-- already.
-- +goose StatementBegin
CREATE TRIGGER waybill_delivery_told AFTER DELETE ON waybill_delivery WHEN OLD.job IS NOT NULL BEGIN
    UPDATE waybill_job
    SET pending = pending - 1,
        done = done + 1,
        delivered = delivered + (NOT EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv = OLD.dlv)),
        failed = failed + EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv = OLD.dlv AND state = 'dead'),
        skipped = skipped + EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv = OLD.dlv AND state = 'cancelled')
    WHERE id = OLD.job;
END;
-- +goose StatementEnd

-- +goose Down

DROP TRIGGER waybill_delivery_told;
DROP INDEX waybill_delivery_job;
UPDATE waybill_delivery SET lane = 0 WHERE lane = 2;
ALTER TABLE waybill_delivery DROP COLUMN was;
ALTER TABLE waybill_delivery DROP COLUMN job;
DROP TABLE waybill_job;
