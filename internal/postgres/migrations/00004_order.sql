-- Strict order. A delivery of a strict endpoint has turn_at: when its turn in its ordering key came,
-- the end of the year 9999 until then. A parked one has that for its next_at too, which puts it
-- behind everything that is ever due.

-- +goose Up

ALTER TABLE waybill.endpoint
    ADD COLUMN ordering text NOT NULL DEFAULT 'none' CHECK (ordering IN ('none', 'strict')),
    ADD COLUMN on_dead text NOT NULL DEFAULT 'skip' CHECK (on_dead IN ('skip', 'hold'));

ALTER TABLE waybill.delivery
    ADD COLUMN turn_at timestamptz,
    ADD CONSTRAINT delivery_turn CHECK (
        (next_at < '9999-12-31 00:00:00+00') = (coalesce(turn_at, '-infinity') < '9999-12-31 00:00:00+00'));
CREATE INDEX delivery_order ON waybill.delivery
    (shard, endpoint, (coalesce(ordering_key, '') COLLATE "C"), sequence)
    WHERE turn_at IS NOT NULL;
-- Whose turn it is. Two of a key at once cannot be written down.
CREATE UNIQUE INDEX delivery_turn_of ON waybill.delivery
    (shard, endpoint, (coalesce(ordering_key, '') COLLATE "C"))
    WHERE turn_at IS NOT NULL AND next_at < '9999-12-31 00:00:00+00';

-- holds: those behind it in its ordering key wait until it is replayed, or the backlog discarded.
ALTER TABLE waybill.dead_letter ADD COLUMN holds boolean NOT NULL DEFAULT false;
CREATE INDEX dead_letter_holds ON waybill.dead_letter
    (shard, endpoint, (coalesce(ordering_key, '') COLLATE "C"), sequence)
    WHERE holds;

-- The order that an endpoint's rows are kept in, written by the shard's owner alone; none for side
-- by side. Configuration says what is wanted and changes at once, the rows follow in steps:
-- parking: those planned before are being parked; what is planned meanwhile is not in order yet.
-- freeing: turns are being given, of every key. leaving: all become due.
CREATE TABLE waybill.endpoint_order (
    shard    smallint NOT NULL,
    endpoint uuid NOT NULL,
    hold     boolean NOT NULL,
    state    text NOT NULL CHECK (state IN ('parking', 'freeing', 'strict', 'leaving')),
    PRIMARY KEY (shard, endpoint)
);

-- +goose StatementBegin
CREATE FUNCTION waybill.became_strict() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Its end must give the turn to the next, which takes the lock of the shard.
    RAISE EXCEPTION 'a delivery became strict while it was under way' USING ERRCODE = 'WB001';
END $$;
-- +goose StatementEnd

-- +goose Down

DROP FUNCTION waybill.became_strict();
DROP TABLE waybill.endpoint_order;
DROP INDEX waybill.dead_letter_holds;
ALTER TABLE waybill.dead_letter DROP COLUMN holds;
UPDATE waybill.delivery SET next_at = clock_timestamp(), turn_at = NULL WHERE turn_at IS NOT NULL AND next_at >= '9999-12-31 00:00:00+00';
DROP INDEX waybill.delivery_turn_of;
DROP INDEX waybill.delivery_order;
ALTER TABLE waybill.delivery DROP CONSTRAINT delivery_turn, DROP COLUMN turn_at;
ALTER TABLE waybill.endpoint DROP COLUMN ordering, DROP COLUMN on_dead;
