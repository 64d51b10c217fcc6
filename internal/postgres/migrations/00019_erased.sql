-- How many bytes an event had whose bytes were erased: the books go on saying how much was sent.
-- NULL where they were not, or were before this was noted.

-- +goose Up

ALTER TABLE waybill.event ADD COLUMN erased_bytes integer;
ALTER TABLE waybill.event_kept ADD COLUMN erased_bytes integer;

-- +goose Down

ALTER TABLE waybill.event_kept DROP COLUMN erased_bytes;
ALTER TABLE waybill.event DROP COLUMN erased_bytes;
