-- What happened, for people to look at: appended by nodes every few seconds, folded into minutes
-- and later hours. tenant 0 is all tenants, an endpoint of zeros all endpoints. span: 0 as it was
-- written, 1 a minute, 2 an hour. answer, first and arrived are packed histograms.

-- +goose Up

CREATE TABLE waybill.traffic (
    shard     smallint NOT NULL,
    tenant    bigint NOT NULL,
    endpoint  uuid NOT NULL,
    at        timestamptz NOT NULL,
    span      smallint NOT NULL CHECK (span IN (0, 1, 2)),
    published bigint NOT NULL,
    unmatched bigint NOT NULL,
    planned   bigint NOT NULL,
    delivered bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    succeeded bigint NOT NULL,
    transient bigint NOT NULL,
    permanent bigint NOT NULL,
    answer    bytea,
    first     bytea,
    arrived   bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX traffic_scope ON waybill.traffic (shard, tenant, endpoint, at);
CREATE INDEX traffic_fold ON waybill.traffic (span, at);
CREATE INDEX traffic_failing ON waybill.traffic (at)
    WHERE endpoint <> '00000000-0000-0000-0000-000000000000' AND transient + permanent > 0;

-- What a node says of itself; its heart is in waybill.node.
CREATE TABLE waybill.node_report (
    node   uuid PRIMARY KEY,
    at     timestamptz NOT NULL,
    detail jsonb NOT NULL CHECK (jsonb_typeof(detail) = 'object')
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500);

-- +goose Down

DROP TABLE waybill.node_report;

DROP TABLE waybill.traffic;
