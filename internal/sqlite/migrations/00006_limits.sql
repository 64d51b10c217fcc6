-- A fixed rate limit of an endpoint, and the stop switch over all nodes.

-- +goose Up

-- Both or neither.
ALTER TABLE waybill_endpoint ADD COLUMN rate_count INTEGER CHECK (rate_count > 0);
ALTER TABLE waybill_endpoint ADD COLUMN rate_per INTEGER CHECK (rate_per > 0 AND (rate_count IS NULL) = (rate_per IS NULL));

ALTER TABLE waybill_setting ADD COLUMN dispatch_paused INTEGER NOT NULL DEFAULT 0 CHECK (dispatch_paused IN (0, 1));
ALTER TABLE waybill_setting ADD COLUMN dispatch_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE waybill_setting ADD COLUMN dispatch_at INTEGER;
ALTER TABLE waybill_setting ADD COLUMN dispatch_by TEXT NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE waybill_setting DROP COLUMN dispatch_by;
ALTER TABLE waybill_setting DROP COLUMN dispatch_at;
ALTER TABLE waybill_setting DROP COLUMN dispatch_reason;
ALTER TABLE waybill_setting DROP COLUMN dispatch_paused;
ALTER TABLE waybill_endpoint DROP COLUMN rate_per;
ALTER TABLE waybill_endpoint DROP COLUMN rate_count;
