-- The tables of Waybill. Every hot table carries the shard first in its key, so that the schema
-- can be distributed by it, and no two tables are tied by a foreign key on the way of an event:
-- such a key would lock the tenant's row until the publisher's own transaction ends.

-- +goose Up

-- What publishers by SQL must know; one row, written when the server starts.
CREATE TABLE waybill.setting (
    one                    boolean PRIMARY KEY DEFAULT true CHECK (one),
    max_payload            integer NOT NULL DEFAULT 262144 CHECK (max_payload BETWEEN 1 AND 1048576),
    retention              interval NOT NULL DEFAULT '30 days',
    idempotency_retention  interval NOT NULL DEFAULT '24 hours',
    create_unknown_tenants boolean NOT NULL DEFAULT false,
    -- Events older than this were dropped with their partition; the proof of the books starts there.
    kept_since             timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO waybill.setting DEFAULT VALUES;

-- Configuration ------------------------------------------------------------------------------

-- A deleted tenant keeps its row for as long as its history is kept; its key is free at once.
CREATE TABLE waybill.tenant (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key           text NOT NULL CHECK (key ~ '^[A-Za-z0-9_.:-]{1,64}$'),
    shard         smallint NOT NULL GENERATED ALWAYS AS (get_byte(sha256(key::bytea), 0)) STORED,
    name          text NOT NULL DEFAULT '',
    weight        double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    max_in_flight integer NOT NULL DEFAULT 10 CHECK (max_in_flight BETWEEN 1 AND 1000),
    max_endpoints integer CHECK (max_endpoints >= 0),
    state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    egress        text NOT NULL DEFAULT 'public' CHECK (egress IN ('public', 'internal')),
    retry         jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(retry) = 'object'),
    metadata      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    resumed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at    timestamptz
);
CREATE UNIQUE INDEX tenant_key ON waybill.tenant (key) WHERE deleted_at IS NULL;

-- Secrets and headers are sealed; a deleted endpoint has neither.
CREATE TABLE waybill.endpoint (
    id            uuid PRIMARY KEY,
    tenant        bigint NOT NULL REFERENCES waybill.tenant (id),
    shard         smallint NOT NULL CHECK (shard BETWEEN 0 AND 255),
    uid           text CHECK (uid ~ '^[A-Za-z0-9_.:-]{1,128}$'),
    url           text NOT NULL CHECK (octet_length(url) <= 2048),
    description   text NOT NULL DEFAULT '',
    metadata      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    event_types   text[] NOT NULL DEFAULT '{*}',
    headers       bytea,
    secrets       bytea,
    max_in_flight integer CHECK (max_in_flight > 0),
    timeout       interval NOT NULL DEFAULT '10 seconds'
                  CHECK (timeout BETWEEN interval '1 second' AND interval '30 seconds'),
    state         text NOT NULL DEFAULT 'active' CHECK (state IN ('draft', 'active', 'paused', 'disabled')),
    state_reason  jsonb,
    retry         jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(retry) = 'object'),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    resumed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    discarded_at  timestamptz,
    deleted_at    timestamptz
);
CREATE UNIQUE INDEX endpoint_uid ON waybill.endpoint (tenant, uid) WHERE uid IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX endpoint_tenant ON waybill.endpoint (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX endpoint_shard ON waybill.endpoint (shard) WHERE deleted_at IS NULL;

-- The revision of a shard's configuration is the sum of its rows. Changes are appended, not
-- counted in place: a caller that makes a tenant inside a long transaction of its own would
-- otherwise hold up every other change in the shard, and two of them could deadlock.
CREATE TABLE waybill.shard_config (
    shard    smallint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX shard_config_shard ON waybill.shard_config (shard);

-- +goose StatementBegin
CREATE FUNCTION waybill.configuration_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO waybill.shard_config (shard, revision)
    SELECT DISTINCT changed.shard, 1 FROM changed;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION waybill.state_resumed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Retry windows are counted from here at the earliest: a day of pause must not use them up.
    NEW.resumed_at := clock_timestamp();
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER tenant_resumed BEFORE UPDATE ON waybill.tenant
    FOR EACH ROW WHEN (NEW.state = 'active' AND OLD.state <> 'active')
    EXECUTE FUNCTION waybill.state_resumed();
CREATE TRIGGER endpoint_resumed BEFORE UPDATE ON waybill.endpoint
    FOR EACH ROW WHEN (NEW.state = 'active' AND OLD.state <> 'active')
    EXECUTE FUNCTION waybill.state_resumed();

CREATE TRIGGER tenant_inserted AFTER INSERT ON waybill.tenant
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();
CREATE TRIGGER tenant_updated AFTER UPDATE ON waybill.tenant
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();
CREATE TRIGGER tenant_deleted AFTER DELETE ON waybill.tenant
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();
CREATE TRIGGER endpoint_inserted AFTER INSERT ON waybill.endpoint
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();
CREATE TRIGGER endpoint_updated AFTER UPDATE ON waybill.endpoint
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();
CREATE TRIGGER endpoint_deleted AFTER DELETE ON waybill.endpoint
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION waybill.configuration_changed();

-- The way of an event ------------------------------------------------------------------------

-- Partitioned by the day in the id. There is no default partition: a row that fits none is a
-- fault to be seen, and a default one would have to be searched whenever a day is added.
CREATE TABLE waybill.event (
    shard        smallint NOT NULL,
    tenant       bigint NOT NULL,
    id           uuid NOT NULL,
    type         text NOT NULL,
    ordering_key text,
    metadata     jsonb,
    payload      bytea NOT NULL,
    sha256       bytea NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (shard, tenant, id)
) PARTITION BY RANGE (id);

-- Events whose partition is gone but which a pending delivery or a dead letter still needs.
CREATE TABLE waybill.event_kept (
    LIKE waybill.event,
    PRIMARY KEY (shard, tenant, id)
);

-- The one way into a shard's owner. pos is the order of acceptance. kind 0 is an event to route
-- (after: the last endpoint planned so far), 1 a delivery to replay, 2 a command in args. There is
-- no CHECK: made ready anew for every single insert, it would cost a publisher 9 µs of 55.
CREATE TABLE waybill.outbox (
    shard    smallint NOT NULL,
    pos      bigint GENERATED ALWAYS AS IDENTITY,
    kind     smallint NOT NULL,
    tenant   bigint NOT NULL,
    event    uuid,
    endpoint uuid,
    after    uuid,
    args     jsonb,
    PRIMARY KEY (shard, pos)
) WITH (
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);

-- Live work only: a row is a pending delivery, and it goes when the delivery ends.
-- (Truncating an emptied table would lock it against everybody, hence vacuum_truncate.)
CREATE TABLE waybill.delivery (
    shard        smallint NOT NULL,
    dlv          uuid NOT NULL,
    tenant       bigint NOT NULL,
    endpoint     uuid NOT NULL,
    event        uuid NOT NULL,
    event_type   text NOT NULL,
    sequence     bigint NOT NULL,
    ordering_key text,
    round        integer NOT NULL DEFAULT 0,
    attempt      integer NOT NULL DEFAULT 0,
    round_start  integer NOT NULL DEFAULT 0,
    lane         smallint NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL,
    sendable_at  timestamptz NOT NULL,
    PRIMARY KEY (shard, dlv),
    CONSTRAINT delivery_counts CHECK (
        sequence > 0 AND round >= 0 AND round_start >= 0 AND attempt >= round_start),
    CONSTRAINT delivery_lane CHECK (lane = 0 OR lane = 1 AND round > 0)
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
-- Ends with dlv, so that a reader's cursor (next_at, dlv) is an exact position.
CREATE INDEX delivery_due ON waybill.delivery (shard, endpoint, lane, next_at, dlv);
CREATE INDEX delivery_tenant ON waybill.delivery (shard, tenant, dlv);

-- Every try, written once. Lengths of time are in nanoseconds, headers JSON. The key begins with the delivery, which makes it the index of a
-- delivery's attempts, of its lists across tenants and of writing a batch again, all in one.
CREATE TABLE waybill.attempt (
    shard            smallint NOT NULL,
    dlv              uuid NOT NULL,
    n                integer NOT NULL CHECK (n > 0),
    id               uuid NOT NULL,
    tenant           bigint NOT NULL,
    endpoint         uuid NOT NULL,
    event            uuid NOT NULL,
    event_type       text NOT NULL,
    sequence         bigint NOT NULL,
    ordering_key     text,
    round            integer NOT NULL,
    trigger          text NOT NULL CHECK (trigger IN ('schedule', 'replay', 'probe', 'test')),
    outcome          text NOT NULL CHECK (outcome IN ('delivered', 'transient', 'permanent')),
    final            boolean NOT NULL,
    at               timestamptz NOT NULL,
    ended_at         timestamptz,
    duration         bigint NOT NULL,
    dns              bigint,
    connect          bigint,
    tls              bigint,
    first_byte       bigint,
    url              text NOT NULL,
    kind             text,
    message          text,
    status_code      smallint,
    request_bytes    integer NOT NULL,
    request_headers  text,
    response_headers text,
    response_body    bytea,
    truncated        boolean NOT NULL,
    PRIMARY KEY (shard, dlv, n, id),
    CONSTRAINT attempt_end CHECK ((ended_at IS NOT NULL) = final AND (outcome <> 'delivered' OR final AND kind IS NULL))
) PARTITION BY RANGE (id);
CREATE INDEX attempt_tenant ON waybill.attempt (shard, tenant, dlv) WHERE final;
CREATE INDEX attempt_endpoint ON waybill.attempt (shard, endpoint, dlv) WHERE final;
-- Attempts are appended in the order of their ids, near enough, so that a summary of every few
-- pages finds one by id; a fourth tree would cost every delivery for a look-up people make.
CREATE INDEX attempt_id ON waybill.attempt USING brin (id) WITH (pages_per_range = 32, autosummarize = on);

-- Everything that ended undelivered.
CREATE TABLE waybill.dead_letter (
    shard           smallint NOT NULL,
    dlv             uuid NOT NULL,
    tenant          bigint NOT NULL,
    endpoint        uuid NOT NULL,
    event           uuid NOT NULL,
    event_type      text NOT NULL,
    sequence        bigint NOT NULL,
    ordering_key    text,
    round           integer NOT NULL,
    attempt         integer NOT NULL,
    state           text NOT NULL CHECK (state IN ('dead', 'cancelled')),
    reason          text NOT NULL CHECK (reason IN ('permanent', 'exhausted', 'expired', 'poison', 'cancelled')),
    kind            text,
    message         text,
    sendable_at     timestamptz NOT NULL,
    at              timestamptz NOT NULL,
    last_id         uuid,
    last_at         timestamptz,
    last_duration   bigint,
    last_status     smallint,
    last_kind       text,
    last_message    text,
    PRIMARY KEY (shard, dlv),
    CONSTRAINT dead_letter_state CHECK ((state = 'cancelled') = (reason = 'cancelled'))
);
CREATE INDEX dead_letter_tenant ON waybill.dead_letter (shard, tenant, dlv);
CREATE INDEX dead_letter_endpoint ON waybill.dead_letter (shard, endpoint, dlv);
CREATE INDEX dead_letter_at ON waybill.dead_letter USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- The next sequence number of an endpoint: appended, the highest counts, older ones are pruned.
-- (Updating one row in place costs 61 ms a time after an hour under somebody's open snapshot.)
CREATE TABLE waybill.mark (
    shard    smallint NOT NULL,
    endpoint uuid NOT NULL,
    next     bigint NOT NULL,
    PRIMARY KEY (shard, endpoint, next)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Counters, appended by the transaction whose rows they count and folded later. day is the day
-- of the events where a row counts events.
CREATE TABLE waybill.ledger (
    shard     smallint NOT NULL,
    at        timestamptz NOT NULL,
    day       date,
    routed    bigint,
    matched   bigint,
    unmatched bigint,
    planned   bigint,
    replayed  bigint,
    delivered bigint,
    dead      bigint,
    cancelled bigint,
    revived   bigint,
    purged    bigint
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ledger_at ON waybill.ledger (shard, at);

-- Keys of requests (kind 1, with their sealed answer) and of events (kind 0, with the event).
CREATE TABLE waybill.idempotency (
    shard      smallint NOT NULL,
    tenant     bigint NOT NULL,
    kind       smallint NOT NULL CHECK (kind IN (0, 1)),
    key        text NOT NULL,
    digest     bytea NOT NULL,
    event      uuid,
    answer     bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (shard, tenant, kind, key),
    CONSTRAINT idempotency_kind CHECK (CASE kind WHEN 0 THEN event IS NOT NULL AND answer IS NULL ELSE event IS NULL END)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idempotency_created ON waybill.idempotency USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

-- Who works on what --------------------------------------------------------------------------

CREATE TABLE waybill.node (
    id         uuid PRIMARY KEY,
    beat       bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL,
    draining   boolean NOT NULL DEFAULT false,
    -- For tidying up after the dead alone: who may take a shard is judged by watching beat.
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500);

-- held: attempts in flight at a hand-over, which the next owner leaves alone.
CREATE TABLE waybill.shard (
    shard    smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    node     uuid,
    epoch    bigint NOT NULL DEFAULT 0,
    released boolean NOT NULL DEFAULT true,
    held     jsonb NOT NULL DEFAULT '[]'
) WITH (fillfactor = 50);
INSERT INTO waybill.shard (shard) SELECT generate_series(0, 255);

-- Partitions ---------------------------------------------------------------------------------

-- +goose StatementBegin
DO $$
BEGIN
    -- Several times faster than the default; not every build has it.
    ALTER TABLE waybill.event ALTER COLUMN payload SET COMPRESSION lz4;
    ALTER TABLE waybill.event_kept ALTER COLUMN payload SET COMPRESSION lz4;
    ALTER TABLE waybill.attempt ALTER COLUMN response_body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
-- +goose StatementEnd

-- The smallest id of a moment: 48 bits of Unix milliseconds, then zeros.
CREATE FUNCTION waybill.id_floor(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT rpad(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- Makes the partition of one day, if it is missing. Never CREATE … PARTITION OF, which locks the
-- parent against every publisher for as long as one idle caller keeps its transaction open.
-- +goose StatementBegin
CREATE FUNCTION waybill.add_partition(parent text, day date) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    child text := parent || '_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF EXISTS (
        SELECT FROM pg_inherits
        WHERE inhparent = ('waybill.' || quote_ident(parent))::regclass
          AND inhrelid = to_regclass('waybill.' || quote_ident(child))
    ) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE waybill.%I (LIKE waybill.%I INCLUDING ALL)', child, parent);
    EXECUTE format('ALTER TABLE waybill.%I ATTACH PARTITION waybill.%I FOR VALUES FROM (%L) TO (%L)',
        parent, child,
        waybill.id_floor(day::timestamp AT TIME ZONE 'UTC'),
        waybill.id_floor((day + 1)::timestamp AT TIME ZONE 'UTC'));
    RETURN true;
END $$;
-- +goose StatementEnd

-- Two days back, because an event's id may be chosen a day old.
SELECT waybill.add_partition(parent, (clock_timestamp() AT TIME ZONE 'UTC')::date + n)
FROM unnest(ARRAY['event', 'attempt']) AS parent, generate_series(-2, 9) AS n;

-- +goose Down

DROP TABLE waybill.shard;
DROP TABLE waybill.node;
DROP TABLE waybill.idempotency;
DROP TABLE waybill.ledger;
DROP TABLE waybill.mark;
DROP TABLE waybill.dead_letter;
DROP TABLE waybill.attempt;
DROP TABLE waybill.delivery;
DROP TABLE waybill.outbox;
DROP TABLE waybill.event_kept;
DROP TABLE waybill.event;
DROP TABLE waybill.shard_config CASCADE;
DROP TABLE waybill.endpoint;
DROP TABLE waybill.tenant;
DROP TABLE waybill.setting;
DROP FUNCTION waybill.add_partition(text, date);
DROP FUNCTION waybill.id_floor(timestamptz);
DROP FUNCTION waybill.state_resumed();
DROP FUNCTION waybill.configuration_changed();
