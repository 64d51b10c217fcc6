-- Whether an event is still to be routed is asked for every event that is looked at. While nothing is
-- routed, all that was published lies in the outbox, and was read from end to end for each.

-- +goose Up

CREATE INDEX outbox_event ON waybill.outbox (event) WHERE kind = 0;

-- +goose Down

DROP INDEX waybill.outbox_event;
