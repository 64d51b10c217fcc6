-- Who may do what: keys of the API, sessions of people, the record of changes, and the name of the
-- environment the database belongs to. tenant 0 is the operator.

-- +goose Up

CREATE TABLE waybill_api_key (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    tenant INTEGER NOT NULL DEFAULT 0,
    scopes TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX waybill_api_key_tenant ON waybill_api_key (tenant, id);

-- Made with a link, whose code is used up when the session gets its token. Only digests of either
-- are kept.
CREATE TABLE waybill_session (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    tenant INTEGER NOT NULL DEFAULT 0,
    code BLOB NOT NULL UNIQUE CHECK (length(code) = 32),
    token BLOB UNIQUE CHECK (length(token) = 32),
    permissions TEXT NOT NULL,
    person TEXT NOT NULL,
    theme TEXT NOT NULL,
    path TEXT NOT NULL,
    return_url TEXT NOT NULL,
    created_by TEXT NOT NULL,
    key_prefix TEXT NOT NULL DEFAULT '', -- of the key that made it, with which it ends
    created_at INTEGER NOT NULL,
    link_expires_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    revoked_at INTEGER,
    CHECK ((token IS NULL) = (used_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX waybill_session_tenant ON waybill_session (tenant, id);
CREATE INDEX waybill_session_end ON waybill_session (expires_at);

-- Written in the transaction of the change it is about, and never changed. The tenant's key is
-- kept beside its number, because the tenant may be gone when somebody asks.
CREATE TABLE waybill_audit (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    tenant INTEGER NOT NULL DEFAULT 0,
    tenant_key TEXT NOT NULL DEFAULT '',
    actor_kind TEXT NOT NULL CHECK (actor_kind IN ('key', 'portal', 'operator', 'cli', 'system')),
    actor TEXT NOT NULL,
    actor_id TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL,
    object TEXT NOT NULL DEFAULT '',
    changes TEXT NOT NULL,
    request_id TEXT NOT NULL DEFAULT '',
    address TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX waybill_audit_tenant ON waybill_audit (tenant, id);
CREATE INDEX waybill_audit_object ON waybill_audit (object, id) WHERE object <> '';

ALTER TABLE waybill_setting ADD COLUMN environment TEXT;

-- +goose Down

ALTER TABLE waybill_setting DROP COLUMN environment;
DROP TABLE waybill_audit;
DROP TABLE waybill_session;
DROP TABLE waybill_api_key;
