-- What was being handled in shards whose last owner died: such a shard is run carefully for some
-- minutes, and whatever is about to be handled there is written down first. Empty otherwise.
-- An outbox row has the zero uuid for its delivery.

-- +goose Up

CREATE TABLE waybill.suspect (
    shard   smallint NOT NULL,
    dlv     uuid NOT NULL,
    pos     bigint NOT NULL,
    strikes integer NOT NULL CHECK (strikes >= 0),
    at      timestamptz NOT NULL,
    PRIMARY KEY (shard, dlv, pos),
    CONSTRAINT suspect_of_one CHECK ((dlv = '00000000-0000-0000-0000-000000000000') <> (pos = 0))
);

-- +goose Down

DROP TABLE waybill.suspect;
