-- What a shard's owner has learned about an endpoint. Written when a breaker changes and at most
-- every ten seconds besides, by the owner alone; configuration stays in waybill_endpoint, whose
-- triggers make the owner of the shard reload it.

-- +goose Up

CREATE TABLE waybill_endpoint_health (
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    endpoint      BLOB    NOT NULL PRIMARY KEY CHECK (length(endpoint) = 16),
    tenant        INTEGER NOT NULL,
    breaker       TEXT    NOT NULL CHECK (breaker IN ('closed', 'open', 'probing')),
    next_probe_at INTEGER,
    detail        TEXT    NOT NULL CHECK (json_type(detail) = 'object'),
    updated_at    INTEGER NOT NULL,
    CHECK ((breaker = 'closed') = (next_probe_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX waybill_endpoint_health_shard ON waybill_endpoint_health (shard);

-- +goose Down

DROP TABLE waybill_endpoint_health;
