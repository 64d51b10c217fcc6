package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// CountDeliveries counts the tenant's deliveries by state.
func (s *Store) CountDeliveries(ctx context.Context, q outbox.CountQuery, limit int) (map[outbox.DeliveryState]outbox.Count, error) {
	counts := map[outbox.DeliveryState]outbox.Count{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		for _, table := range []string{"delivery", "dead_letter", "attempt"} {
			sql, args := countStatement(table, q, limit)
			b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
				var all, cancelled int
				if err := row.Scan(&all, &cancelled); err != nil {
					return err
				}
				capped := all >= limit
				switch table {
				case "delivery":
					counts[outbox.StatePending] = outbox.Count{N: all, Capped: capped}
				case "attempt":
					counts[outbox.StateDelivered] = outbox.Count{N: all, Capped: capped}
				default:
					counts[outbox.StateDead] = outbox.Count{N: all - cancelled, Capped: capped}
					counts[outbox.StateCancelled] = outbox.Count{N: cancelled, Capped: capped}
				}
				return nil
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// countStatement counts the rows of one table, those of cancelled dead letters apart.
func countStatement(table string, q outbox.CountQuery, limit int) (string, []any) {
	args := []any{int16(q.Tenant.Shard), int64(q.Tenant.ID), limit}
	where := []string{"shard = $1", "tenant = $2"}
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if !q.Endpoint.IsZero() {
		add("endpoint = $%d", uuid(q.Endpoint))
	}
	if !q.From.IsZero() {
		add("dlv >= $%d", uuid(outbox.DeliveryFloor(q.From)))
		if table == "attempt" { // so the planner leaves days out; a chosen event id may lie a little ahead
			add("id >= $%d", uuid(outbox.EventFloor(q.From.Add(-10*time.Minute))))
		}
	}
	if !q.To.IsZero() {
		add("dlv < $%d", uuid(outbox.DeliveryFloor(q.To)))
	}
	state := "''"
	switch table {
	case "dead_letter":
		state = "state"
	case "attempt":
		where = append(where, "final", "outcome = 'delivered'")
	}
	return `
		SELECT count(*), count(*) FILTER (WHERE state = 'cancelled')
		FROM (
			SELECT ` + state + ` AS state
			FROM waybill.` + table + `
			WHERE ` + strings.Join(where, " AND ") + `
			ORDER BY dlv DESC -- else all of a large tenant's are collected first
			LIMIT $3
		) AS counted`, args
}
