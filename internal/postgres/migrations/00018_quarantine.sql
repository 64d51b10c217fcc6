-- What it takes to make an event of a quarantined request after all: its metadata, the key that
-- keeps a second one out, and which event it became.

-- +goose Up

ALTER TABLE waybill.inbound
    ADD COLUMN metadata    jsonb CHECK (metadata IS NULL OR jsonb_typeof(metadata) = 'object'),
    ADD COLUMN release_key bytea CHECK (release_key IS NULL OR outcome = 'quarantined'),
    ADD COLUMN released    uuid;

-- +goose Down

ALTER TABLE waybill.inbound
    DROP COLUMN metadata,
    DROP COLUMN release_key,
    DROP COLUMN released;
