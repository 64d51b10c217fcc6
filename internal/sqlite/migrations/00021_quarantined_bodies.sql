-- Quarantined requests are found by the key that their event has or would have, and one whose event is
-- stored keeps no body of its own: it would outlive an erasure of the event.

-- +goose Up

CREATE INDEX waybill_inbound_release ON waybill_inbound (shard, release_key) WHERE release_key IS NOT NULL;
UPDATE waybill_inbound AS q
SET released = coalesce(q.released, a.event), body = NULL
FROM waybill_inbound AS a
WHERE q.outcome = 'quarantined' AND a.shard = q.shard AND a.key = q.release_key AND a.digest = q.digest;
UPDATE waybill_inbound
SET body = NULL
WHERE released IS NOT NULL AND body IS NOT NULL;

-- +goose Down

DROP INDEX waybill_inbound_release;
