-- What an endpoint's server wants to see and to get: credentials, other signatures, a filter, thin
-- deliveries; and the operator's signature schemes and catalogue of event types.

-- +goose Up

ALTER TABLE waybill_endpoint ADD COLUMN credentials BLOB CHECK (deleted_at IS NULL OR credentials IS NULL); -- sealed: secret headers and a client certificate
ALTER TABLE waybill_endpoint ADD COLUMN signing TEXT NOT NULL DEFAULT '["standard"]' CHECK (json_type(signing) = 'array');
ALTER TABLE waybill_endpoint ADD COLUMN filter TEXT;
ALTER TABLE waybill_endpoint ADD COLUMN payload_mode TEXT NOT NULL DEFAULT 'full' CHECK (payload_mode IN ('full', 'thin'));
ALTER TABLE waybill_endpoint ADD COLUMN thin_ttl INTEGER CHECK (thin_ttl > 0);

CREATE TABLE waybill_signature_scheme (
    name       TEXT    PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    definition TEXT    NOT NULL CHECK (json_valid(definition)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- A scheme is configuration of every shard: whoever signs with it may be anywhere.
-- +goose StatementBegin
CREATE TRIGGER waybill_signature_scheme_inserted AFTER INSERT ON waybill_signature_scheme BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_signature_scheme_updated AFTER UPDATE ON waybill_signature_scheme BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_signature_scheme_removed AFTER DELETE ON waybill_signature_scheme BEGIN
    UPDATE waybill_shard_config SET revision = revision + 1;
END;
-- +goose StatementEnd

CREATE TABLE waybill_event_type (
    name        TEXT    PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    description TEXT    NOT NULL DEFAULT '',
    schema      TEXT,
    example     TEXT,
    on_invalid  TEXT    NOT NULL DEFAULT 'warn' CHECK (on_invalid IN ('warn', 'refuse')),
    archived    INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;

ALTER TABLE waybill_setting ADD COLUMN catalogue_revision INTEGER NOT NULL DEFAULT 0;
-- +goose StatementBegin
CREATE TRIGGER waybill_event_type_inserted AFTER INSERT ON waybill_event_type BEGIN
    UPDATE waybill_setting SET catalogue_revision = catalogue_revision + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_event_type_updated AFTER UPDATE ON waybill_event_type BEGIN
    UPDATE waybill_setting SET catalogue_revision = catalogue_revision + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER waybill_event_type_removed AFTER DELETE ON waybill_event_type BEGIN
    UPDATE waybill_setting SET catalogue_revision = catalogue_revision + 1;
END;
-- +goose StatementEnd

-- +goose Down

DROP TABLE waybill_event_type;
ALTER TABLE waybill_setting DROP COLUMN catalogue_revision;
DROP TABLE waybill_signature_scheme;
ALTER TABLE waybill_endpoint DROP COLUMN thin_ttl;
ALTER TABLE waybill_endpoint DROP COLUMN payload_mode;
ALTER TABLE waybill_endpoint DROP COLUMN filter;
ALTER TABLE waybill_endpoint DROP COLUMN signing;
ALTER TABLE waybill_endpoint DROP COLUMN credentials;
