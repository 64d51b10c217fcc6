-- Erasures of many events' bytes are jobs too.

-- +goose Up

ALTER TABLE waybill.job DROP CONSTRAINT job_type_check;
ALTER TABLE waybill.job
    ADD CONSTRAINT job_type_check CHECK (type IN ('replay', 'cancellation', 'delete_tenant', 'erasure')) NOT VALID;

-- +goose Down

DELETE FROM waybill.job WHERE type = 'erasure';
ALTER TABLE waybill.job DROP CONSTRAINT job_type_check;
ALTER TABLE waybill.job
    ADD CONSTRAINT job_type_check CHECK (type IN ('replay', 'cancellation', 'delete_tenant')) NOT VALID;
