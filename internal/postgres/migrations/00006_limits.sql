-- A fixed rate limit of an endpoint, and the stop switch over all nodes.

-- +goose Up

ALTER TABLE waybill.endpoint
    ADD COLUMN rate_count integer CHECK (rate_count > 0),
    ADD COLUMN rate_per interval CHECK (rate_per > interval '0'),
    ADD CONSTRAINT endpoint_rate CHECK ((rate_count IS NULL) = (rate_per IS NULL));

ALTER TABLE waybill.setting
    ADD COLUMN dispatch_paused boolean NOT NULL DEFAULT false,
    ADD COLUMN dispatch_reason text NOT NULL DEFAULT '',
    ADD COLUMN dispatch_at timestamptz,
    ADD COLUMN dispatch_by text NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE waybill.setting
    DROP COLUMN dispatch_by,
    DROP COLUMN dispatch_at,
    DROP COLUMN dispatch_reason,
    DROP COLUMN dispatch_paused;
ALTER TABLE waybill.endpoint
    DROP CONSTRAINT endpoint_rate,
    DROP COLUMN rate_per,
    DROP COLUMN rate_count;
