-- Whether the address an attempt went to was one that only an allow list opens: what such a server
-- answered is shown to operators and to nobody else. Attempts from before are taken for public ones.

-- +goose Up

ALTER TABLE waybill.attempt ADD COLUMN opened boolean NOT NULL DEFAULT false;

-- +goose Down

ALTER TABLE waybill.attempt DROP COLUMN opened;
