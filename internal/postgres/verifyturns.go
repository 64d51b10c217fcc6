package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// queueTurnFaults finds ordering keys in which more than one delivery has the turn, or none though
// nothing holds the first; 100 at most. Endpoints that are being switched are passed over.
func queueTurnFaults(b *pgx.Batch, check *outbox.Check) {
	check.Name = "in every ordering key one delivery has the turn, or a dead one holds it"
	b.Queue(`
		SELECT key.endpoint, key.key, key.turns
		FROM (
			SELECT d.shard, d.endpoint, ` + keyOfD + ` AS key, min(d.sequence) AS first,
				count(*) FILTER (WHERE d.next_at < ` + parkedAt + `) AS turns
			FROM waybill.delivery AS d
			WHERE d.turn_at IS NOT NULL
			GROUP BY d.shard, d.endpoint, ` + keyOfD + `
		) AS key
		WHERE key.turns <> 1
			AND NOT EXISTS (
				SELECT FROM waybill.endpoint_order AS o
				WHERE o.shard = key.shard AND o.endpoint = key.endpoint AND o.state <> 'strict'
			)
			AND NOT (key.turns = 0 AND EXISTS (
				SELECT FROM waybill.dead_letter AS l
				WHERE l.shard = key.shard AND l.endpoint = key.endpoint AND ` + keyOfL + ` = key.key AND l.holds AND l.sequence < key.first
			))
		ORDER BY 1, 2
		LIMIT 100`,
	).Query(func(rows pgx.Rows) error {
		var endpoint outbox.EndpointID
		var key string
		var turns int64
		_, err := pgx.ForEachRow(rows, []any{intoID(&endpoint), &key, &turns}, func() error {
			check.Broken = append(check.Broken, outbox.Imbalance{
				Where: fmt.Sprintf("endpoint %s, ordering key %q", endpoint, key),
				Left:  turns,
				Right: 1,
			})
			return nil
		})
		return err
	})
}
