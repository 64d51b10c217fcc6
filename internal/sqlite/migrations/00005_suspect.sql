-- What was being handled in shards whose last owner died: such a shard is run carefully for some
-- minutes, and whatever is about to be handled there is written down first. Empty otherwise.
-- An outbox row has the zero id for its delivery.

-- +goose Up

CREATE TABLE waybill_suspect (
    shard   INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 255),
    dlv     BLOB    NOT NULL CHECK (length(dlv) = 16),
    pos     INTEGER NOT NULL,
    strikes INTEGER NOT NULL CHECK (strikes >= 0),
    at      INTEGER NOT NULL,
    PRIMARY KEY (shard, dlv, pos),
    CHECK ((dlv = x'00000000000000000000000000000000') <> (pos = 0))
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE waybill_suspect;
