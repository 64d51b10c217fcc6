-- Jobs: replays and cancellations of many deliveries. The row is written when one is asked for and
-- belongs to the shard's owner from then on. A delivery that a replay planned says which job it
-- was, and what it was before, so that a job that is stopped can put it back.

-- +goose Up

CREATE TABLE waybill.job (
    shard       smallint NOT NULL,
    id          uuid NOT NULL,
    tenant      bigint NOT NULL,
    tenant_key  text NOT NULL, -- the tenant's row may have lost it
    type        text NOT NULL CHECK (type IN ('replay', 'cancellation', 'delete_tenant')),
    filter      jsonb NOT NULL CHECK (jsonb_typeof(filter) = 'object'),
    reason      text NOT NULL DEFAULT '',
    rate        double precision NOT NULL DEFAULT 0 CHECK (rate >= 0),
    key         text,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL,
    state       text NOT NULL CHECK (state IN ('running', 'stopping', 'done', 'cancelled', 'failed')),
    finished_at timestamptz,
    cursor      uuid,
    scanned     boolean NOT NULL DEFAULT false,
    matched     bigint NOT NULL,
    done        bigint NOT NULL DEFAULT 0,
    delivered   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    skipped     bigint NOT NULL DEFAULT 0,
    pending     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, id),
    CONSTRAINT job_end CHECK ((finished_at IS NOT NULL) = (state NOT IN ('running', 'stopping')))
) WITH (fillfactor = 50);
CREATE INDEX job_tenant ON waybill.job (shard, tenant, id);
CREATE UNIQUE INDEX job_key ON waybill.job (shard, tenant, key) WHERE key IS NOT NULL;
CREATE INDEX job_running ON waybill.job (shard) WHERE state IN ('running', 'stopping');

-- How deliveries of jobs ended: appended by the transactions that end them, which must not wait
-- for one row, and added up by the owner.
CREATE TABLE waybill.job_tally (
    shard     smallint NOT NULL,
    job       uuid NOT NULL,
    delivered bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    skipped   bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_tally_job ON waybill.job_tally (shard, job);

-- was: the dead letter that was there before, its state "delivered" where there was none; NULL
-- where nothing was planned before. Both are NULL for all that no job planned, which costs nothing.
ALTER TABLE waybill.delivery
    ADD COLUMN job uuid,
    ADD COLUMN was jsonb;
CREATE INDEX delivery_job ON waybill.delivery (shard, job, dlv) WHERE job IS NOT NULL;

-- Lane 2 is for test events, which wait for nobody.
ALTER TABLE waybill.delivery DROP CONSTRAINT delivery_lane;
ALTER TABLE waybill.delivery
    ADD CONSTRAINT delivery_lane CHECK (lane = 0 OR lane = 1 AND round > 0 OR lane = 2) NOT VALID;

-- +goose Down

UPDATE waybill.delivery SET lane = 0 WHERE lane = 2;
ALTER TABLE waybill.delivery DROP CONSTRAINT delivery_lane;
ALTER TABLE waybill.delivery
    ADD CONSTRAINT delivery_lane CHECK (lane = 0 OR lane = 1 AND round > 0) NOT VALID;
DROP INDEX waybill.delivery_job;
ALTER TABLE waybill.delivery DROP COLUMN was, DROP COLUMN job;
DROP TABLE waybill.job_tally;
DROP TABLE waybill.job;
