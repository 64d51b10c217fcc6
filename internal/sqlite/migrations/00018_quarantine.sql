-- What it takes to make an event of a quarantined request after all: its metadata, the key that
-- keeps a second one out, and which event it became.

-- +goose Up

ALTER TABLE waybill_inbound ADD COLUMN metadata TEXT CHECK (metadata IS NULL OR json_valid(metadata));
ALTER TABLE waybill_inbound ADD COLUMN release_key BLOB CHECK (release_key IS NULL OR length(release_key) = 32);
ALTER TABLE waybill_inbound ADD COLUMN released BLOB;

-- +goose Down

ALTER TABLE waybill_inbound DROP COLUMN metadata;
ALTER TABLE waybill_inbound DROP COLUMN release_key;
ALTER TABLE waybill_inbound DROP COLUMN released;
