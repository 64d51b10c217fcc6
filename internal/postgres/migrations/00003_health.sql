-- What a shard's owner has learned about an endpoint. Written when a breaker changes and at most
-- every ten seconds besides, by the owner alone; configuration stays in waybill.endpoint, whose
-- triggers make every owner of the shard reload it.

-- +goose Up

CREATE TABLE waybill.endpoint_health (
    shard         smallint NOT NULL,
    endpoint      uuid NOT NULL,
    tenant        bigint NOT NULL,
    breaker       text NOT NULL CHECK (breaker IN ('closed', 'open', 'probing')),
    next_probe_at timestamptz,
    detail        jsonb NOT NULL CHECK (jsonb_typeof(detail) = 'object'),
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (shard, endpoint),
    CONSTRAINT endpoint_health_probe CHECK ((breaker = 'closed') = (next_probe_at IS NULL))
) WITH (fillfactor = 50);
CREATE INDEX endpoint_health_open ON waybill.endpoint_health (shard) WHERE breaker <> 'closed';

-- +goose Down

DROP TABLE waybill.endpoint_health;
