-- Who may do what: keys of the API, sessions of people, the record of changes, and the name of the
-- environment the database belongs to. tenant 0 is the operator.

-- +goose Up

CREATE TABLE waybill.api_key (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    prefix text NOT NULL,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    tenant bigint NOT NULL DEFAULT 0,
    scopes text[] NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz
);
CREATE INDEX api_key_tenant ON waybill.api_key (tenant, id);

-- Made with a link, whose code is used up when the session gets its token. Only digests of either
-- are kept.
CREATE TABLE waybill.session (
    id uuid PRIMARY KEY,
    tenant bigint NOT NULL DEFAULT 0,
    code bytea NOT NULL UNIQUE CHECK (octet_length(code) = 32),
    token bytea UNIQUE CHECK (octet_length(token) = 32),
    permissions text[] NOT NULL,
    person jsonb NOT NULL,
    theme jsonb NOT NULL,
    path text NOT NULL,
    return_url text NOT NULL,
    created_by text NOT NULL,
    key_prefix text NOT NULL DEFAULT '', -- of the key that made it, with which it ends
    created_at timestamptz NOT NULL,
    link_expires_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    revoked_at timestamptz,
    CHECK ((token IS NULL) = (used_at IS NULL))
);
CREATE INDEX session_tenant ON waybill.session (tenant, id);
CREATE INDEX session_end ON waybill.session (expires_at);

-- Written in the transaction of the change it is about, and never changed. The tenant's key is
-- kept beside its number, because the tenant may be gone when somebody asks.
CREATE TABLE waybill.audit (
    id uuid PRIMARY KEY,
    tenant bigint NOT NULL DEFAULT 0,
    tenant_key text NOT NULL DEFAULT '',
    actor_kind text NOT NULL CHECK (actor_kind IN ('key', 'portal', 'operator', 'cli', 'system')),
    actor text NOT NULL,
    actor_id text NOT NULL DEFAULT '',
    action text NOT NULL,
    object text NOT NULL DEFAULT '',
    changes jsonb NOT NULL,
    request_id text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT ''
);
CREATE INDEX audit_tenant ON waybill.audit (tenant, id);
CREATE INDEX audit_object ON waybill.audit (object, id) WHERE object <> '';

ALTER TABLE waybill.setting ADD COLUMN environment text;

-- +goose Down

ALTER TABLE waybill.setting DROP COLUMN environment;
DROP TABLE waybill.audit;
DROP TABLE waybill.session;
DROP TABLE waybill.api_key;
