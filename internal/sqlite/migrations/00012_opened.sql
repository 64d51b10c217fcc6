-- Whether the address an attempt went to was one that only an allow list opens: what such a server
-- answered is shown to operators and to nobody else. Attempts from before are taken for public ones.

-- +goose Up

ALTER TABLE waybill_attempt ADD COLUMN opened INTEGER NOT NULL DEFAULT 0 CHECK (opened IN (0, 1));

-- +goose Down

ALTER TABLE waybill_attempt DROP COLUMN opened;
