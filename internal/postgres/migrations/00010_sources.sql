-- Sources, at which somebody else's webhooks arrive, and what arrived.

-- +goose Up

-- A deleted source keeps its row, without secrets, until the last of its
-- requests is forgotten.
CREATE TABLE waybill.source (
    id         uuid PRIMARY KEY,
    shard      smallint NOT NULL GENERATED ALWAYS AS (get_byte(sha256(name::bytea), 0)) STORED,
    name       text NOT NULL CHECK (name ~ '^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,63}$'),
    provider   text NOT NULL,
    tenant     bigint NOT NULL,
    state      text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    settings   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(settings) = 'object'),
    secrets    bytea,
    keep       interval NOT NULL CHECK (keep > interval '0'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz
);
CREATE UNIQUE INDEX source_name ON waybill.source (name) WHERE deleted_at IS NULL;

-- The shard is that of the source's name. An accepted request is written in the transaction that
-- writes its event, and its key is what keeps a second one out.
CREATE TABLE waybill.inbound (
    shard       smallint NOT NULL,
    source      uuid NOT NULL,
    id          uuid NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'rejected', 'quarantined')),
    key         bytea CHECK (key IS NULL OR outcome = 'accepted'),
    digest      bytea NOT NULL,
    event       uuid,
    provider_id text,
    topic       text,
    reason      text,
    detail      text,
    bytes       integer NOT NULL,
    times       integer NOT NULL DEFAULT 1,
    body        bytea,
    PRIMARY KEY (shard, source, id)
);
CREATE UNIQUE INDEX inbound_key ON waybill.inbound (shard, key) WHERE key IS NOT NULL;
CREATE INDEX inbound_outcome ON waybill.inbound (shard, source, outcome, id) WHERE outcome <> 'accepted';
ALTER TABLE waybill.inbound SET (autovacuum_vacuum_insert_scale_factor = 0.05);

-- +goose Down

DROP TABLE waybill.inbound;
DROP TABLE waybill.source;
