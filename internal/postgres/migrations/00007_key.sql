-- A mark of every encryption key that this database has been served with: a known text, sealed
-- with it. A server whose keys do not open them would take every endpoint for a broken one.

-- +goose Up

CREATE TABLE waybill.key_mark (
    mark bytea PRIMARY KEY CHECK (length(mark) BETWEEN 5 AND 200)
);

-- +goose Down

DROP TABLE waybill.key_mark;
