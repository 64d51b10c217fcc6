package sqlite

import (
	"fmt"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// turns proves that in every ordering key of a strict endpoint one delivery has the turn, unless
// a dead one before the first holds the key. Endpoints that are being switched are passed over.
func (p *proof) turns() error {
	check := outbox.Check{Name: "in every ordering key one delivery has the turn, or a dead one holds it"}
	err := p.session.eachOnce(p.ctx, `
		SELECT endpoint, ordering_key, turns
		FROM (
			SELECT shard, endpoint, ordering_key, min(sequence) AS first,
				count(*) FILTER (WHERE next_at < `+parkedAt+`) AS turns
			FROM waybill_delivery
			WHERE turn_at IS NOT NULL
			GROUP BY shard, endpoint, ordering_key
		) AS k
		WHERE turns <> 1
			AND NOT EXISTS (
				SELECT 1 FROM waybill_endpoint_order AS o
				WHERE o.endpoint = k.endpoint AND o.state <> 'strict'
			)
			AND NOT (turns = 0 AND EXISTS (
				SELECT 1 FROM waybill_dead_letter AS l
				WHERE l.shard = k.shard AND l.endpoint = k.endpoint AND l.ordering_key = k.ordering_key
					AND l.holds = 1 AND l.sequence < k.first
			))
		ORDER BY endpoint, ordering_key
		LIMIT 100`,
		nil,
		func(scan scan) error {
			var endpoint outbox.EndpointID
			var key string
			var turns int64
			err := scan(idTo{(*[16]byte)(&endpoint)}, &key, &turns)
			compare(&check, fmt.Sprintf("endpoint %s, ordering key %q", endpoint, key), turns, 1)
			return err
		})
	p.report.Checks = append(p.report.Checks, check)
	return err
}
