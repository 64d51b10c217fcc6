package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// allShards are the shards an operator's look-up goes through when only an id is known. Keeping
// an index for it instead would cost every delivery.
var allShards = func() []outbox.Shard {
	shards := make([]outbox.Shard, outbox.Shards)
	for i := range shards {
		shards[i] = outbox.Shard(i)
	}
	return shards
}()

// shardsOf are the shards a tenant's rows may lie in.
func shardsOf(tenant outbox.TenantRef) []outbox.Shard {
	if tenant.ID == 0 {
		return allShards
	}
	return []outbox.Shard{tenant.Shard}
}

// firstAttempt is the smallest id an attempt of the delivery can have. An event's id may lie a
// little ahead of its acceptance.
func firstAttempt(dlv outbox.DeliveryID) outbox.AttemptID {
	return outbox.AttemptFloor(dlv.Time().Add(-outbox.ChosenIDFuture - time.Minute))
}

// deliveryKey finds a delivery whichever table holds it.
type deliveryKey struct {
	shard outbox.Shard
	id    outbox.DeliveryID
}

// queueViews reads deliveries by their keys into list, in that order; a key that leads to
// nothing, or to another tenant's delivery, is passed over. A pending row counts before a dead
// letter and that before a delivered attempt: late results leave an older state behind.
func queueViews(b *pgx.Batch, tenant outbox.TenantRef, keys []deliveryKey, list *[]outbox.DeliveryView) {
	if len(keys) == 0 {
		return
	}
	oldest, newest := keys[0].id.Time(), keys[0].id.Time() // which are their events' too
	for _, k := range keys {
		if at := k.id.Time(); at.Before(oldest) {
			oldest = at
		} else if at.After(newest) {
			newest = at
		}
	}
	earliest := firstAttempt(outbox.DeliveryFloor(oldest))
	first, last := outbox.EventFloor(oldest), outbox.EventID(outbox.DeliveryCeil(newest))
	b.Queue(`
		SELECT v.shard, v.dlv, v.tenant, v.endpoint, v.event, v.event_type, v.sequence, v.ordering_key,
			v.round, v.attempt, v.round_start, v.lane, v.next_at, v.sendable_at,
			v.state, v.reason, v.kind, v.message, v.ended_at,
			coalesce(a.id, v.last_id), coalesce(a.n, v.attempt), coalesce(a.at, v.last_at),
			coalesce(a.duration, v.last_duration), coalesce(a.status_code, v.last_status),
			coalesce(a.kind, v.last_kind), coalesce(a.message, v.last_message),
			t.key, t.state, ep.url, CASE WHEN ep.deleted_at IS NULL THEN ep.state END,
			t.max_in_flight, ep.max_in_flight, ep.rate_count, ep.rate_per, e.created_at
		FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY AS w (shard, dlv, n)
		LEFT JOIN LATERAL (
			SELECT a.id, a.n, a.at, a.duration, a.status_code, a.kind, a.message
			FROM waybill.attempt AS a
			WHERE a.shard = w.shard AND a.dlv = w.dlv AND a.id >= $3
			ORDER BY a.round DESC, a.n DESC, a.id DESC
			LIMIT 1
		) AS a ON true
		CROSS JOIN LATERAL (
			SELECT 1 AS rank, d.shard, d.dlv, d.tenant, d.endpoint, d.event, d.event_type, d.sequence, d.ordering_key,
				d.round, d.attempt, d.round_start, d.lane, d.next_at, d.sendable_at,
				'pending' AS state, NULL AS reason, NULL AS kind, NULL AS message, NULL::timestamptz AS ended_at,
				NULL::uuid AS last_id, NULL::timestamptz AS last_at, NULL::bigint AS last_duration,
				NULL::smallint AS last_status, NULL AS last_kind, NULL AS last_message
			FROM waybill.delivery AS d
			WHERE d.shard = w.shard AND d.dlv = w.dlv
			UNION ALL
			SELECT 2, l.shard, l.dlv, l.tenant, l.endpoint, l.event, l.event_type, l.sequence, l.ordering_key,
				l.round, l.attempt, 0, 0, NULL, l.sendable_at,
				l.state, l.reason, l.kind, l.message, l.at,
				l.last_id, l.last_at, l.last_duration, l.last_status, l.last_kind, l.last_message
			FROM waybill.dead_letter AS l
			WHERE l.shard = w.shard AND l.dlv = w.dlv
			UNION ALL
			(
				SELECT 3, f.shard, f.dlv, f.tenant, f.endpoint, f.event, f.event_type, f.sequence, f.ordering_key,
					f.round, f.n, 0, 0, NULL, NULL,
					'delivered', NULL, NULL, NULL, f.ended_at,
					NULL, NULL, NULL, NULL, NULL, NULL
				FROM waybill.attempt AS f
				WHERE f.shard = w.shard AND f.dlv = w.dlv AND f.id >= $3 AND f.final AND f.outcome = 'delivered'
				ORDER BY f.round DESC, f.n DESC
				LIMIT 1
			)
			ORDER BY rank
			LIMIT 1
		) AS v
		LEFT JOIN waybill.tenant AS t ON t.id = v.tenant
		LEFT JOIN waybill.endpoint AS ep ON ep.id = v.endpoint
		LEFT JOIN LATERAL (
			SELECT e.created_at
			FROM waybill.event AS e
			WHERE e.shard = v.shard AND e.tenant = v.tenant AND e.id = v.event AND e.id BETWEEN $5 AND $6
			UNION ALL
			SELECT k.created_at
			FROM waybill.event_kept AS k
			WHERE k.shard = v.shard AND k.tenant = v.tenant AND k.id = v.event
			LIMIT 1
		) AS e ON true
		WHERE $4 = 0 OR v.tenant = $4
		ORDER BY w.n`,
		column(keys, func(k *deliveryKey) int16 { return int16(k.shard) }),
		column(keys, func(k *deliveryKey) zeronull.UUID { return uuid(k.id) }),
		uuid(earliest), int64(tenant.ID), uuid(first), uuid(last),
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			v, err := scanView(rows)
			if err != nil {
				return err
			}
			*list = append(*list, v)
		}
		return rows.Err()
	})
}

func scanView(row pgx.Rows) (outbox.DeliveryView, error) {
	var v outbox.DeliveryView
	var dead outbox.DeadInfo
	var last outbox.AttemptSummary
	var duration zeronull.Int8
	var status zeronull.Int2
	var tenantInFlight, endpointInFlight zeronull.Int4
	var rateCount *int
	var ratePer *time.Duration
	d := &v.Delivery
	err := row.Scan(
		intoShard(&d.Shard), intoID(&d.ID), &d.Tenant, intoID(&d.Endpoint), intoID(&d.Event), &d.EventType, &d.Sequence, intoText(&d.OrderingKey),
		&d.Round, &d.Attempt, &d.RoundStart, &d.Lane, intoTime(&d.NextAt), intoTime(&d.SendableAt),
		&v.State, intoText(&dead.Reason), intoText(&dead.Kind), intoText(&dead.Message), intoTime(&v.FinishedAt),
		intoID(&last.ID), &last.N, intoTime(&last.At), &duration, &status, intoText(&last.Kind), intoText(&last.Message),
		intoText(&v.TenantKey), intoText(&v.TenantState), intoText(&v.EndpointURL), intoText(&v.EndpointState),
		&tenantInFlight, &endpointInFlight, &rateCount, &ratePer, intoTime(&v.CreatedAt))
	if err != nil {
		return v, err
	}
	v.Limits = outbox.DeliveryLimits{
		TenantInFlight:   int(tenantInFlight),
		EndpointInFlight: int(endpointInFlight),
		Rate:             rateLimit(rateCount, ratePer),
	}
	if v.CreatedAt.IsZero() {
		v.CreatedAt = d.ID.Time()
	}
	if dead.Reason != "" {
		dead.At = v.FinishedAt
		v.Dead = &dead
	}
	if !last.ID.IsZero() {
		last.Duration, last.StatusCode = time.Duration(duration), int(status)
		v.Last = &last
	}
	return v, nil
}

// Delivery implements outbox.Reading.
func (s *Store) Delivery(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryView, error) {
	var keys []deliveryKey
	for _, shard := range shardsOf(tenant) {
		keys = append(keys, deliveryKey{shard, id})
	}
	var found []outbox.DeliveryView
	err := s.read(ctx, people, func(b *pgx.Batch) {
		found = nil
		queueViews(b, tenant, keys, &found)
	})
	return only(found, err)
}

// DeliveryTenant implements outbox.Reading.
func (s *Store) DeliveryTenant(ctx context.Context, id outbox.DeliveryID) (outbox.TenantRef, error) {
	v, err := s.Delivery(ctx, outbox.TenantRef{}, id)
	return outbox.TenantRef{ID: v.Tenant, Shard: v.Shard}, err
}

// RequestReplay implements outbox.Reading.
func (s *Store) RequestReplay(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryState, error) {
	v, err := s.Delivery(ctx, tenant, id)
	if err != nil {
		return "", err
	}
	if v.EndpointState == "" {
		return "", outbox.ErrEndpointGone
	}
	// Not Event, which looks through the outbox for whether the event was routed.
	kept := false
	err = s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT NOT `+erased+`
			FROM (
				SELECT e.payload, e.sha256
				FROM waybill.event AS e
				WHERE e.shard = $1 AND e.tenant = $2 AND e.id = $3
				UNION ALL
				SELECT k.payload, k.sha256
				FROM waybill.event_kept AS k
				WHERE k.shard = $1 AND k.tenant = $2 AND k.id = $3
			) AS e
			LIMIT 1`,
			int16(v.Shard), int64(v.Tenant), uuid(v.Event),
		).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&kept}, func() error { return nil })
			return err
		})
	})
	if err != nil {
		return "", err
	}
	if !kept {
		return "", outbox.ErrPayloadGone
	}
	err = s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			INSERT INTO waybill.outbox (shard, kind, tenant, event, endpoint)
			VALUES ($1, 1, $2, $3, $4)`,
			int16(v.Shard), int64(v.Tenant), uuid(v.Event), uuid(v.Endpoint))
		return nil
	})
	return v.State, err
}

// PendingOf implements outbox.Reading.
func (s *Store) PendingOf(ctx context.Context, tenant outbox.TenantRef, id outbox.EndpointID, limit int) (int, time.Time, error) {
	found, err := s.Backlogs(ctx, tenant, []outbox.EndpointRow{{Endpoint: id}}, limit)
	return found[id].Pending, found[id].Oldest, err
}

const attemptColumns = `
	a.id, a.n, a.round, a.sequence, a.dlv, a.event, a.event_type, a.endpoint, a.tenant, a.shard, t.key,
	a.trigger, a.outcome, a.at, a.duration, a.dns, a.connect, a.tls, a.first_byte,
	a.url, a.kind, a.message, a.status_code, a.request_bytes,
	a.request_headers, a.response_headers, a.response_body, a.truncated, a.opened`

func collectAttempts(list *[]outbox.AttemptView) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var v outbox.AttemptView
			var status zeronull.Int2
			var dns, connect, tls, firstByte zeronull.Int8
			var requestHeaders, responseHeaders string
			a := &v.Attempt
			err := rows.Scan(
				intoID(&a.ID), &v.N, &v.Round, &v.Sequence, intoID(&v.Delivery), intoID(&v.Event), &v.EventType, intoID(&v.Endpoint), &v.Tenant.ID, intoShard(&v.Tenant.Shard), intoText(&v.TenantKey),
				&a.Trigger, &a.Outcome, &a.At, (*int64)(&a.Duration), &dns, &connect, &tls, &firstByte,
				&a.URL, intoText(&a.Kind), intoText(&a.Message), &status, &a.RequestBytes,
				intoText(&requestHeaders), intoText(&responseHeaders), &a.ResponseBody, &a.Truncated, &a.Opened)
			if err != nil {
				return err
			}
			a.StatusCode = int(status)
			a.Timing = outbox.Timing{
				DNS:       time.Duration(dns),
				Connect:   time.Duration(connect),
				TLS:       time.Duration(tls),
				FirstByte: time.Duration(firstByte),
			}
			for text, into := range map[string]*[]outbox.Header{requestHeaders: &a.RequestHeaders, responseHeaders: &a.ResponseHeaders} {
				if text == "" {
					continue
				}
				if err := json.Unmarshal([]byte(text), into); err != nil {
					return err
				}
			}
			*list = append(*list, v)
		}
		return rows.Err()
	}
}

// Attempts implements outbox.Reading.
func (s *Store) Attempts(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID, after int, page outbox.Page) ([]outbox.AttemptView, error) {
	beyond, order := past(page, "a.n", "$3"), direction(page)
	var list []outbox.AttemptView
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+attemptColumns+`
			FROM waybill.attempt AS a
			LEFT JOIN waybill.tenant AS t ON t.id = a.tenant
			WHERE a.shard = ANY ($1) AND a.dlv = $2 AND ($3 = 0 OR `+beyond+`) AND a.id >= $4 AND ($5 = 0 OR a.tenant = $5)
			ORDER BY a.n `+order+`, a.id `+order+`
			LIMIT $6`,
			shardColumn(shardsOf(tenant)), uuid(id), after, uuid(firstAttempt(id)), int64(tenant.ID), page.Limit,
		).Query(collectAttempts(&list))
	})
	return list, err
}

// Attempt implements outbox.Reading.
func (s *Store) Attempt(ctx context.Context, tenant outbox.TenantRef, id outbox.AttemptID) (outbox.AttemptView, error) {
	var list []outbox.AttemptView
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+attemptColumns+`
			FROM waybill.attempt AS a
			LEFT JOIN waybill.tenant AS t ON t.id = a.tenant
			WHERE a.id = $1 AND ($2 = 0 OR a.tenant = $2)
			LIMIT 1`,
			uuid(id), int64(tenant.ID),
		).Query(collectAttempts(&list))
	})
	return only(list, err)
}
