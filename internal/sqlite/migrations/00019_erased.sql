-- How many bytes an event had whose bytes were erased: the books go on saying how much was sent.
-- NULL where they were not, or were before this was noted; a NULL behind a large payload is read
-- from the head of its row.

-- +goose Up

ALTER TABLE waybill_event ADD COLUMN erased_bytes INTEGER;

-- +goose Down

ALTER TABLE waybill_event DROP COLUMN erased_bytes;
