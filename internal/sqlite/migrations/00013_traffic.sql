-- What happened, for people to look at: appended every few seconds, folded into minutes and later
-- hours. tenant 0 is all tenants, an endpoint of zeros all endpoints. span: 0 as it was written,
-- 1 a minute, 2 an hour. answer, first and arrived are packed histograms.

-- +goose Up

CREATE TABLE waybill_traffic (
    id        INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    endpoint  BLOB    NOT NULL CHECK (length(endpoint) = 16),
    at        INTEGER NOT NULL,
    span      INTEGER NOT NULL CHECK (span IN (0, 1, 2)),
    published INTEGER NOT NULL,
    unmatched INTEGER NOT NULL,
    planned   INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    transient INTEGER NOT NULL,
    permanent INTEGER NOT NULL,
    answer    BLOB,
    first     BLOB,
    arrived   BLOB
) STRICT;

CREATE INDEX waybill_traffic_scope ON waybill_traffic (tenant, endpoint, at);
CREATE INDEX waybill_traffic_fold ON waybill_traffic (span, at);
CREATE INDEX waybill_traffic_failing ON waybill_traffic (at)
    WHERE endpoint <> x'00000000000000000000000000000000' AND transient + permanent > 0;

-- What a node says of itself; its heart is in waybill_node.
CREATE TABLE waybill_node_report (
    node   BLOB    PRIMARY KEY CHECK (length(node) = 16),
    at     INTEGER NOT NULL,
    detail TEXT    NOT NULL CHECK (json_valid(detail))
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE waybill_node_report;

DROP TABLE waybill_traffic;
