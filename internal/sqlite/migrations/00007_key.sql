-- A mark of every encryption key that this database has been served with: a known text, sealed
-- with it. A server whose keys do not open them would take every endpoint for a broken one.

-- +goose Up

CREATE TABLE waybill_key_mark (
    mark BLOB PRIMARY KEY CHECK (length(mark) BETWEEN 5 AND 200)
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE waybill_key_mark;
