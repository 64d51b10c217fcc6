-- Publishing from SQL, in the caller's own transaction: waybill.publish, waybill.ensure_tenant and
-- the view waybill.published.
--
-- The functions run as their owner with a pinned search path, so a publisher's role needs USAGE
-- on the schema and EXECUTE on the functions and nothing else. They touch no row that strangers
-- share and send no NOTIFY, whose commit takes a lock on the whole database. Times are
-- clock_timestamp(): now() is the moment the caller's transaction began.
--
-- Errors: WB001 unknown tenant, WB002 invalid payload, WB003 payload too large, WB004 the id or
-- the idempotency key belongs to other content, WB005 bad tenant, type, id or other field.

-- +goose Up

-- The typed form of an id: a prefix, then 26 characters of Crockford's base32, most significant
-- bits first (two zero bits lead). Written out, because every publish pays for it: a loop over
-- generate_series takes ten times as long. The letters are bytes, whose n-th is found without
-- counting characters.
-- +goose StatementBegin
CREATE FUNCTION waybill.event_id(id uuid) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    letters CONSTANT bytea := '0123456789abcdefghjkmnpqrstvwxyz';
    hex     CONSTANT text := translate(id::text, '-', '');
    hi      CONSTANT bigint := ('x' || left(hex, 16))::bit(64)::bigint;
    lo      CONSTANT bigint := ('x' || right(hex, 16))::bit(64)::bigint;
BEGIN
    RETURN 'evt_' || convert_from(
        substr(letters, (hi >> 61 & 7)::integer + 1, 1) || substr(letters, (hi >> 56 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 51 & 31)::integer + 1, 1) || substr(letters, (hi >> 46 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 41 & 31)::integer + 1, 1) || substr(letters, (hi >> 36 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 31 & 31)::integer + 1, 1) || substr(letters, (hi >> 26 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 21 & 31)::integer + 1, 1) || substr(letters, (hi >> 16 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 11 & 31)::integer + 1, 1) || substr(letters, (hi >> 6 & 31)::integer + 1, 1) ||
        substr(letters, (hi >> 1 & 31)::integer + 1, 1) || substr(letters, ((hi << 4 & 16) | (lo >> 60 & 15))::integer + 1, 1) ||
        substr(letters, (lo >> 55 & 31)::integer + 1, 1) || substr(letters, (lo >> 50 & 31)::integer + 1, 1) ||
        substr(letters, (lo >> 45 & 31)::integer + 1, 1) || substr(letters, (lo >> 40 & 31)::integer + 1, 1) ||
        substr(letters, (lo >> 35 & 31)::integer + 1, 1) || substr(letters, (lo >> 30 & 31)::integer + 1, 1) ||
        substr(letters, (lo >> 25 & 31)::integer + 1, 1) || substr(letters, (lo >> 20 & 31)::integer + 1, 1) ||
        substr(letters, (lo >> 15 & 31)::integer + 1, 1) || substr(letters, (lo >> 10 & 31)::integer + 1, 1) ||
        substr(letters, (lo >> 5 & 31)::integer + 1, 1) || substr(letters, (lo & 31)::integer + 1, 1),
        'UTF8');
END $$;
-- +goose StatementEnd

-- Reads the typed form; NULL if it is not one.
-- +goose StatementBegin
CREATE FUNCTION waybill.parse_event_id(id text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN id ~ '^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$' THEN (
        SELECT string_agg(to_hex(substr(bits, n, 4)::bit(4)::integer), '' ORDER BY n)
        FROM (
            SELECT substr(string_agg((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(id, n, 1)) - 1)::bit(5)::text, '' ORDER BY n), 3) AS bits
            FROM generate_series(5, 30) AS n
        ) AS b, generate_series(1, 125, 4) AS n
    )::uuid END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION waybill.ensure_tenant(key text, name text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key IS NULL OR key !~ '^[A-Za-z0-9_.:-]{1,64}$' OR key = 'waybill' THEN
        RAISE EXCEPTION 'tenant: want 1 to 64 letters, digits or any of _ . : - (and not "waybill", which is reserved)'
            USING ERRCODE = 'WB005', COLUMN = 'tenant';
    END IF;
    INSERT INTO waybill.tenant (key, name)
    VALUES (ensure_tenant.key, coalesce(ensure_tenant.name, ''))
    ON CONFLICT DO NOTHING; -- its key is a partial index, which has no constraint to name
    RETURN FOUND;
END $$;
-- +goose StatementEnd

-- accept is what the overloads of publish have in common; checked says that the bytes are known
-- to be JSON.
-- +goose StatementBegin
CREATE FUNCTION waybill.accept(
    tenant text, type text, payload bytea, checked boolean,
    id text, ordering_key text, idempotency_key text, metadata jsonb
) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    at       timestamptz := clock_timestamp();
    known    record;
    met      record;
    event_id uuid;
    sum      bytea;
    bytes    bytea := payload;
    parsed   json;
BEGIN
    SELECT t.id, t.shard, s.max_payload, s.retention, s.idempotency_retention, s.create_unknown_tenants
    INTO known
    FROM waybill.setting AS s
    LEFT JOIN waybill.tenant AS t ON t.key = tenant AND t.deleted_at IS NULL;

    IF known.id IS NULL THEN
        IF tenant IS NULL OR tenant !~ '^[A-Za-z0-9_.:-]{1,64}$' OR tenant = 'waybill' THEN
            RAISE EXCEPTION 'tenant: want 1 to 64 letters, digits or any of _ . : - (and not "waybill", which is reserved)'
                USING ERRCODE = 'WB005', COLUMN = 'tenant';
        END IF;
        IF NOT known.create_unknown_tenants THEN
            RAISE EXCEPTION 'tenant: "%" is not known', tenant
                USING ERRCODE = 'WB001', COLUMN = 'tenant',
                HINT = 'Make it with waybill.ensure_tenant, or start the server with WAYBILL_UNKNOWN_TENANT=create.';
        END IF;
        PERFORM waybill.ensure_tenant(tenant);
        SELECT t.id, t.shard, s.max_payload, s.retention, s.idempotency_retention, s.create_unknown_tenants
        INTO known
        FROM waybill.setting AS s
        JOIN waybill.tenant AS t ON t.key = tenant AND t.deleted_at IS NULL;
    ELSIF tenant = 'waybill' THEN
        RAISE EXCEPTION 'tenant: "waybill" is reserved' USING ERRCODE = 'WB005', COLUMN = 'tenant';
    END IF;

    IF type IS NULL OR octet_length(type) > 128 OR type !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' THEN
        RAISE EXCEPTION 'type: want words of letters, digits, _ and -, joined by dots, at most 128 bytes'
            USING ERRCODE = 'WB005', COLUMN = 'type';
    END IF;
    IF ordering_key = '' THEN
        ordering_key := NULL;
    ELSIF octet_length(ordering_key) > 255 THEN
        RAISE EXCEPTION 'ordering_key: want at most 255 bytes' USING ERRCODE = 'WB005', COLUMN = 'ordering_key';
    END IF;
    IF idempotency_key = '' THEN
        idempotency_key := NULL;
    ELSIF octet_length(idempotency_key) > 255 THEN
        RAISE EXCEPTION 'idempotency_key: want at most 255 bytes' USING ERRCODE = 'WB005', COLUMN = 'idempotency_key';
    END IF;
    IF metadata IS NOT NULL THEN
        IF jsonb_typeof(metadata) <> 'object'
            OR (SELECT count(*) > 50 OR bool_or(jsonb_typeof(m.value) <> 'string') FROM jsonb_each(metadata) AS m)
        THEN
            RAISE EXCEPTION 'metadata: want an object of at most 50 strings' USING ERRCODE = 'WB005', COLUMN = 'metadata';
        END IF;
        metadata := nullif(metadata, '{}');
    END IF;

    IF bytes IS NULL THEN
        RAISE EXCEPTION 'payload: want JSON, not NULL' USING ERRCODE = 'WB002', COLUMN = 'payload';
    END IF;
    IF octet_length(bytes) > known.max_payload THEN
        RAISE EXCEPTION 'payload: % bytes, at most % are allowed', octet_length(bytes), known.max_payload
            USING ERRCODE = 'WB003', COLUMN = 'payload';
    END IF;
    IF NOT checked THEN
        BEGIN
            parsed := convert_from(bytes, 'UTF8');
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            RAISE EXCEPTION 'payload: not valid JSON in UTF-8' USING ERRCODE = 'WB002', COLUMN = 'payload', DETAIL = SQLERRM;
        END;
    END IF;
    sum := sha256(bytes);

    IF id IS NULL OR id = '' THEN
        -- A UUIDv7: the time in milliseconds, then what a random one has.
        id := NULL;
        event_id := (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid;
    ELSE
        event_id := waybill.parse_event_id(id);
        IF event_id IS NULL THEN
            RAISE EXCEPTION 'id: want evt_ and 26 characters of lower-case base32' USING ERRCODE = 'WB005', COLUMN = 'id';
        END IF;
        IF event_id < waybill.id_floor(greatest(at - interval '24 hours', at - known.retention + interval '1 day'))
            OR event_id >= waybill.id_floor(at + interval '5 minutes')
        THEN
            RAISE EXCEPTION 'id: its time must lie between 24 hours ago and 5 minutes ahead' USING ERRCODE = 'WB005', COLUMN = 'id';
        END IF;
    END IF;

    IF idempotency_key IS NOT NULL THEN
        INSERT INTO waybill.idempotency AS old (shard, tenant, kind, key, digest, event, created_at)
        VALUES (known.shard, known.id, 0, idempotency_key, sha256(convert_to(type, 'UTF8') || '\x00' || sum), event_id, at)
        ON CONFLICT ON CONSTRAINT idempotency_pkey DO UPDATE
        SET digest = excluded.digest, event = excluded.event, created_at = excluded.created_at
        WHERE old.created_at < excluded.created_at - known.idempotency_retention;
        IF NOT FOUND THEN
            SELECT held.digest = sha256(convert_to(type, 'UTF8') || '\x00' || sum) AS same, held.event
            INTO met
            FROM waybill.idempotency AS held
            WHERE held.shard = known.shard AND held.tenant = known.id AND held.kind = 0 AND held.key = idempotency_key;
            IF NOT met.same THEN
                RAISE EXCEPTION 'idempotency_key: it was used with another type or payload'
                    USING ERRCODE = 'WB004', COLUMN = 'idempotency_key';
            END IF;
            RETURN waybill.event_id(met.event);
        END IF;
    END IF;

    IF id IS NOT NULL THEN
        INSERT INTO waybill.event (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
        VALUES (known.shard, known.id, event_id, type, ordering_key, metadata, bytes, sum, at)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT held.type = type AND held.sha256 = sum AS same
            INTO met
            FROM waybill.event AS held
            WHERE held.shard = known.shard AND held.tenant = known.id AND held.id = event_id;
            IF NOT met.same THEN
                RAISE EXCEPTION 'id: an event with this id exists and has other content' USING ERRCODE = 'WB004', COLUMN = 'id';
            END IF;
            RETURN id;
        END IF;
    ELSE
        INSERT INTO waybill.event (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
        VALUES (known.shard, known.id, event_id, type, ordering_key, metadata, bytes, sum, at);
    END IF;
    INSERT INTO waybill.outbox (shard, kind, tenant, event)
    VALUES (known.shard, 0, known.id, event_id);
    RETURN waybill.event_id(event_id);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION waybill.publish(
    tenant text, type text, payload text,
    id text DEFAULT NULL, ordering_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, metadata jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN waybill.accept(tenant, type, convert_to(payload, 'UTF8'), false, id, ordering_key, idempotency_key, metadata);
END $$;
-- +goose StatementEnd

-- The bytes of a json value are the text it was written as.
-- +goose StatementBegin
CREATE FUNCTION waybill.publish(
    tenant text, type text, payload json,
    id text DEFAULT NULL, ordering_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, metadata jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN waybill.accept(tenant, type, convert_to(payload::text, 'UTF8'), true, id, ordering_key, idempotency_key, metadata);
END $$;
-- +goose StatementEnd

-- The bytes of a jsonb value are its text form.
-- +goose StatementBegin
CREATE FUNCTION waybill.publish(
    tenant text, type text, payload jsonb,
    id text DEFAULT NULL, ordering_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, metadata jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN waybill.accept(tenant, type, convert_to(payload::text, 'UTF8'), true, id, ordering_key, idempotency_key, metadata);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION waybill.publish(
    tenant text, type text, payload bytea,
    id text DEFAULT NULL, ordering_key text DEFAULT NULL, idempotency_key text DEFAULT NULL, metadata jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN waybill.accept(tenant, type, payload, false, id, ordering_key, idempotency_key, metadata);
END $$;
-- +goose StatementEnd

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA waybill FROM PUBLIC;

-- For the assertions of an application's tests.
CREATE VIEW waybill.published AS
SELECT waybill.event_id(e.id) AS id, t.key AS tenant, e.type, convert_from(e.payload, 'UTF8') AS payload, e.ordering_key, e.created_at
FROM waybill.event AS e
JOIN waybill.tenant AS t ON t.id = e.tenant;

-- +goose Down

DROP VIEW waybill.published;
DROP FUNCTION waybill.publish(text, text, bytea, text, text, text, jsonb);
DROP FUNCTION waybill.publish(text, text, jsonb, text, text, text, jsonb);
DROP FUNCTION waybill.publish(text, text, json, text, text, text, jsonb);
DROP FUNCTION waybill.publish(text, text, text, text, text, text, jsonb);
DROP FUNCTION waybill.accept(text, text, bytea, boolean, text, text, text, jsonb);
DROP FUNCTION waybill.ensure_tenant(text, text);
DROP FUNCTION waybill.parse_event_id(text);
DROP FUNCTION waybill.event_id(uuid);
