-- A stand-in for Waybill in an application's test database: publishing by SQL works, is checked
-- and can be asserted on; nothing is delivered. Load it with psql -f, or from the tests.
--
--   SELECT waybill.ensure_tenant('acme', 'Acme Inc');
--   SELECT waybill.publish(tenant => 'acme', type => 'payment.succeeded', payload => '{"id":"pay_1"}');
--   SELECT id, tenant, type, payload, ordering_key, created_at FROM waybill.published;

DO $$
BEGIN
  IF to_regclass('waybill.outbox') IS NOT NULL THEN
    RAISE EXCEPTION 'this database has the real waybill schema; the stub is for test databases without it';
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS waybill;

CREATE TABLE IF NOT EXISTS waybill.stub_tenant (
  key  text PRIMARY KEY,
  name text
);

CREATE TABLE IF NOT EXISTS waybill.stub_event (
  pos             bigint      GENERATED ALWAYS AS IDENTITY,
  tenant          text        NOT NULL REFERENCES waybill.stub_tenant ON DELETE CASCADE,
  id              text        NOT NULL,
  type            text        NOT NULL,
  payload         text        NOT NULL,
  ordering_key    text,
  idempotency_key text,
  metadata        jsonb,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, idempotency_key)
);

-- What was published, in that order.
CREATE OR REPLACE VIEW waybill.published AS
SELECT id, tenant, type, payload, ordering_key, created_at
FROM waybill.stub_event
ORDER BY pos;

CREATE OR REPLACE FUNCTION waybill.ensure_tenant(key text, name text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF ensure_tenant.key IS NULL OR ensure_tenant.key !~ '^[A-Za-z0-9_.:-]{1,64}$' OR ensure_tenant.key = 'waybill' THEN
    RAISE EXCEPTION 'tenant: want 1 to 64 of letters, digits and _ . : - (and not "waybill", which is reserved)' USING ERRCODE = 'WB005';
  END IF;
  INSERT INTO waybill.stub_tenant AS t (key, name)
  VALUES (ensure_tenant.key, ensure_tenant.name)
  ON CONFLICT ON CONSTRAINT stub_tenant_pkey DO NOTHING;
  RETURN FOUND;
END $$;

-- An event id is evt_ and a UUIDv7 in base32 (Crockford's alphabet, lower-case). The first ten
-- of its 26 characters are the 48 bits of its milliseconds.
CREATE OR REPLACE FUNCTION waybill.stub_new_id() RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  millis bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
  -- A random UUID already has the variant; the time and the version are laid over it.
  uuid   text   := lpad(to_hex(millis), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14);
  bits   bit(130) := B'00' || ('x' || uuid)::bit(128);
BEGIN
  RETURN 'evt_' || (
    SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', substring(bits FROM i * 5 + 1 FOR 5)::integer + 1, 1), '' ORDER BY i)
    FROM generate_series(0, 25) AS i);
END $$;

CREATE OR REPLACE FUNCTION waybill.stub_id_time(id text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT to_timestamp(sum((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(id, 4 + i, 1)) - 1) * power(32::numeric, 10 - i)) / 1000)
  FROM generate_series(1, 10) AS i
$$;

CREATE OR REPLACE FUNCTION waybill.publish(
  tenant          text,
  type            text,
  payload         text,
  id              text  DEFAULT NULL,
  ordering_key    text  DEFAULT NULL,
  idempotency_key text  DEFAULT NULL,
  metadata        jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  known  waybill.stub_event;
  new_id text := nullif(publish.id, '');
BEGIN
  IF publish.tenant IS NULL OR publish.tenant !~ '^[A-Za-z0-9_.:-]{1,64}$' OR publish.tenant = 'waybill' THEN
    RAISE EXCEPTION 'tenant: want 1 to 64 of letters, digits and _ . : - (and not "waybill", which is reserved)' USING ERRCODE = 'WB005';
  END IF;
  IF publish.type IS NULL OR octet_length(publish.type) > 128
     OR publish.type !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' THEN
    RAISE EXCEPTION 'type: want words of letters, digits, _ and - joined by dots' USING ERRCODE = 'WB005';
  END IF;
  IF new_id IS NOT NULL THEN
    IF new_id !~ '^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$' THEN
      RAISE EXCEPTION 'id: want evt_ and 26 characters of base32' USING ERRCODE = 'WB005';
    END IF;
    IF waybill.stub_id_time(new_id) NOT BETWEEN clock_timestamp() - interval '24 hours'
                                            AND clock_timestamp() + interval '5 minutes' THEN
      RAISE EXCEPTION 'id: its time must lie between 24 hours ago and 5 minutes ahead' USING ERRCODE = 'WB005';
    END IF;
  END IF;
  IF octet_length(publish.ordering_key) > 255 THEN
    RAISE EXCEPTION 'ordering_key: at most 255 bytes' USING ERRCODE = 'WB005';
  END IF;
  IF octet_length(publish.idempotency_key) > 255 THEN
    RAISE EXCEPTION 'idempotency_key: at most 255 bytes' USING ERRCODE = 'WB005';
  END IF;
  IF publish.metadata IS NOT NULL AND (
       jsonb_typeof(publish.metadata) <> 'object'
       OR EXISTS (SELECT FROM jsonb_each(publish.metadata) AS m WHERE jsonb_typeof(m.value) <> 'string')) THEN
    RAISE EXCEPTION 'metadata: want an object of strings' USING ERRCODE = 'WB005';
  END IF;
  IF publish.metadata IS NOT NULL AND (SELECT count(*) FROM jsonb_object_keys(publish.metadata)) > 50 THEN
    RAISE EXCEPTION 'metadata: at most 50 entries' USING ERRCODE = 'WB005';
  END IF;
  IF octet_length(publish.payload) > 262144 THEN
    RAISE EXCEPTION 'payload: % bytes, at most 262144', octet_length(publish.payload) USING ERRCODE = 'WB003';
  END IF;
  BEGIN
    IF publish.payload IS NULL OR publish.payload::json IS NULL THEN
      RAISE EXCEPTION 'payload: missing' USING ERRCODE = 'WB002';
    END IF;
  EXCEPTION WHEN invalid_text_representation THEN
    RAISE EXCEPTION 'payload: not valid JSON' USING ERRCODE = 'WB002';
  END;
  IF NOT EXISTS (SELECT FROM waybill.stub_tenant AS t WHERE t.key = publish.tenant) THEN
    RAISE EXCEPTION 'unknown tenant "%"', publish.tenant USING ERRCODE = 'WB001';
  END IF;

  INSERT INTO waybill.stub_event (tenant, id, type, payload, ordering_key, idempotency_key, metadata)
  VALUES (publish.tenant, coalesce(new_id, waybill.stub_new_id()), publish.type, publish.payload,
          nullif(publish.ordering_key, ''), nullif(publish.idempotency_key, ''), publish.metadata)
  ON CONFLICT DO NOTHING
  RETURNING stub_event.id INTO new_id;
  IF FOUND THEN
    RETURN new_id;
  END IF;

  -- The key, or else the chosen id, stands for an earlier event: the same one, or a conflict.
  SELECT * INTO known
  FROM waybill.stub_event AS e
  WHERE e.tenant = publish.tenant
    AND (e.idempotency_key = publish.idempotency_key OR e.id = publish.id)
  ORDER BY e.idempotency_key = publish.idempotency_key DESC NULLS LAST
  LIMIT 1;
  IF known.type = publish.type AND known.payload = publish.payload THEN
    RETURN known.id;
  END IF;
  RAISE EXCEPTION 'the id or the idempotency key stands for an event with other content' USING ERRCODE = 'WB004';
END $$;

CREATE OR REPLACE FUNCTION waybill.publish(
  tenant          text,
  type            text,
  payload         json,
  id              text  DEFAULT NULL,
  ordering_key    text  DEFAULT NULL,
  idempotency_key text  DEFAULT NULL,
  metadata        jsonb DEFAULT NULL
) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT waybill.publish(tenant, type, payload::text, id, ordering_key, idempotency_key, metadata) $$;

CREATE OR REPLACE FUNCTION waybill.publish(
  tenant          text,
  type            text,
  payload         jsonb,
  id              text  DEFAULT NULL,
  ordering_key    text  DEFAULT NULL,
  idempotency_key text  DEFAULT NULL,
  metadata        jsonb DEFAULT NULL
) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT waybill.publish(tenant, type, payload::text, id, ordering_key, idempotency_key, metadata) $$;

CREATE OR REPLACE FUNCTION waybill.publish(
  tenant          text,
  type            text,
  payload         bytea,
  id              text  DEFAULT NULL,
  ordering_key    text  DEFAULT NULL,
  idempotency_key text  DEFAULT NULL,
  metadata        jsonb DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  content text;
BEGIN
  BEGIN
    content := convert_from(payload, 'UTF8');
  EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RAISE EXCEPTION 'payload: not UTF-8' USING ERRCODE = 'WB002';
  END;
  RETURN waybill.publish(tenant, type, content, id, ordering_key, idempotency_key, metadata);
END $$;

-- Whoever tests an application may publish and look.
GRANT USAGE ON SCHEMA waybill TO PUBLIC;
GRANT SELECT ON waybill.published TO PUBLIC;
