-- Sources, at which somebody else's webhooks arrive, and what arrived.

-- +goose Up

-- A deleted source keeps its row, without secrets and without its name, until the last of its
-- requests is forgotten.
CREATE TABLE waybill_source (
    id         BLOB PRIMARY KEY CHECK (length(id) = 16),
    name       TEXT UNIQUE,
    provider   TEXT    NOT NULL,
    tenant     INTEGER NOT NULL,
    state      TEXT    NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    settings   TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(settings)),
    secrets    BLOB,
    keep       INTEGER NOT NULL CHECK (keep > 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    shard      INTEGER NOT NULL
) STRICT;

-- The shard is that of the source's name. An accepted request is written in the transaction that
-- writes its event, and its key is what keeps a second one out.
CREATE TABLE waybill_inbound (
    shard       INTEGER NOT NULL,
    source      BLOB    NOT NULL CHECK (length(source) = 16),
    id          BLOB    NOT NULL CHECK (length(id) = 16),
    outcome     TEXT    NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'rejected', 'quarantined')),
    key         BLOB    CHECK (key IS NULL OR outcome = 'accepted' AND length(key) = 32),
    digest      BLOB    NOT NULL CHECK (length(digest) = 32),
    event       BLOB,
    provider_id TEXT,
    topic       TEXT,
    reason      TEXT,
    detail      TEXT,
    bytes       INTEGER NOT NULL,
    times       INTEGER NOT NULL DEFAULT 1,
    body        BLOB,
    PRIMARY KEY (shard, source, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waybill_inbound_key ON waybill_inbound (shard, key) WHERE key IS NOT NULL;
CREATE INDEX waybill_inbound_outcome ON waybill_inbound (shard, source, outcome, id) WHERE outcome <> 'accepted';

-- +goose Down

DROP TABLE waybill_inbound;
DROP TABLE waybill_source;
