-- Strict order. A delivery of a strict endpoint has turn_at: when its turn in its ordering key came,
-- the end of the year 9999 until then. A parked one has that for its next_at too, which puts it
-- behind everything that is ever due.

-- +goose Up

ALTER TABLE waybill_endpoint ADD COLUMN ordering TEXT NOT NULL DEFAULT 'none' CHECK (ordering IN ('none', 'strict'));
ALTER TABLE waybill_endpoint ADD COLUMN on_dead TEXT NOT NULL DEFAULT 'skip' CHECK (on_dead IN ('skip', 'hold'));

ALTER TABLE waybill_delivery ADD COLUMN turn_at INTEGER
    CHECK ((next_at < 253402214400000000) = (coalesce(turn_at, 0) < 253402214400000000));
CREATE INDEX waybill_delivery_order ON waybill_delivery (shard, endpoint, ordering_key, sequence)
    WHERE turn_at IS NOT NULL;
-- Whose turn it is. Two of a key at once cannot be written down.
CREATE UNIQUE INDEX waybill_delivery_turn ON waybill_delivery (shard, endpoint, ordering_key)
    WHERE turn_at IS NOT NULL AND next_at < 253402214400000000;

-- holds: those behind it in its ordering key wait until it is replayed, or the backlog discarded.
ALTER TABLE waybill_dead_letter ADD COLUMN holds INTEGER NOT NULL DEFAULT 0 CHECK (holds IN (0, 1));
CREATE INDEX waybill_dead_letter_holds ON waybill_dead_letter (shard, endpoint, ordering_key, sequence)
    WHERE holds = 1;

-- The order that an endpoint's rows are kept in, written by the shard's owner alone; none for side
-- by side. Configuration says what is wanted and changes at once, the rows follow in steps:
-- parking: those planned before are being parked; what is planned meanwhile is not in order yet.
-- freeing: turns are being given, of every key. leaving: all become due.
CREATE TABLE waybill_endpoint_order (
    endpoint BLOB    NOT NULL PRIMARY KEY CHECK (length(endpoint) = 16),
    shard    INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    hold     INTEGER NOT NULL CHECK (hold IN (0, 1)),
    state    TEXT    NOT NULL CHECK (state IN ('parking', 'freeing', 'strict', 'leaving'))
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE waybill_endpoint_order;
DROP INDEX waybill_dead_letter_holds;
ALTER TABLE waybill_dead_letter DROP COLUMN holds;
UPDATE waybill_delivery
SET next_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), turn_at = NULL
WHERE next_at >= 253402214400000000;
DROP INDEX waybill_delivery_turn;
DROP INDEX waybill_delivery_order;
ALTER TABLE waybill_delivery DROP COLUMN turn_at;
ALTER TABLE waybill_endpoint DROP COLUMN on_dead;
ALTER TABLE waybill_endpoint DROP COLUMN ordering;
