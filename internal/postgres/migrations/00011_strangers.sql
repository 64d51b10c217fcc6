-- What an endpoint's server wants to see and to get: credentials, other signatures, a filter, thin
-- deliveries; and the operator's signature schemes and catalogue of event types.

-- +goose Up

ALTER TABLE waybill.endpoint
    ADD COLUMN credentials bytea, -- sealed: secret headers and a client certificate
    ADD COLUMN signing text[] NOT NULL DEFAULT '{standard}',
    ADD COLUMN filter text,
    ADD COLUMN payload_mode text NOT NULL DEFAULT 'full' CONSTRAINT endpoint_payload_mode CHECK (payload_mode IN ('full', 'thin')),
    ADD COLUMN thin_ttl interval CHECK (thin_ttl > interval '0'),
    ADD CONSTRAINT endpoint_deleted_credentials CHECK (deleted_at IS NULL OR credentials IS NULL);

CREATE TABLE waybill.signature_scheme (
    name       text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    definition json NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

-- A scheme is configuration of every shard: whoever signs with it may be anywhere.
-- +goose StatementBegin
CREATE FUNCTION waybill.schemes_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO waybill.shard_config (shard, revision)
    SELECT shard, 1 FROM generate_series(0, 255) AS shard;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER signature_scheme_changed AFTER INSERT OR UPDATE OR DELETE ON waybill.signature_scheme
    FOR EACH STATEMENT EXECUTE FUNCTION waybill.schemes_changed();

CREATE TABLE waybill.event_type (
    name        text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    description text NOT NULL DEFAULT '',
    schema      text,
    example     text,
    on_invalid  text NOT NULL DEFAULT 'warn' CHECK (on_invalid IN ('warn', 'refuse')),
    archived    boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL
);
CREATE SEQUENCE waybill.catalogue_revision;

-- +goose StatementBegin
CREATE FUNCTION waybill.catalogue_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM nextval('waybill.catalogue_revision');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER event_type_changed AFTER INSERT OR UPDATE OR DELETE ON waybill.event_type
    FOR EACH STATEMENT EXECUTE FUNCTION waybill.catalogue_changed();

-- +goose Down

DROP TABLE waybill.event_type;
DROP FUNCTION waybill.catalogue_changed();
DROP SEQUENCE waybill.catalogue_revision;
DROP TABLE waybill.signature_scheme;
DROP FUNCTION waybill.schemes_changed();
ALTER TABLE waybill.endpoint
    DROP CONSTRAINT endpoint_deleted_credentials,
    DROP COLUMN thin_ttl,
    DROP COLUMN payload_mode,
    DROP COLUMN filter,
    DROP COLUMN signing,
    DROP COLUMN credentials;
