package waybill

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Every argument goes as text and is cast in the statement. The payload most of all: pgx sends
// a []byte to a text parameter as \x… in two of its query modes, and not in the other three.
func publishPostgres[R Row](ctx context.Context, tx Tx[R], e Event) (id string, err error) {
	metadata, err := metadataText(e.Metadata)
	if err != nil {
		return "", err
	}
	err = tx.QueryRowContext(ctx, `
		SELECT waybill.publish(
			tenant          => $1::text,
			type            => $2::text,
			payload         => $3::text,
			id              => $4::text,
			ordering_key    => $5::text,
			idempotency_key => $6::text,
			metadata        => $7::text::jsonb)`,
		e.Tenant, e.Type, string(e.Payload),
		orNull(e.ID), orNull(e.OrderingKey), orNull(e.IdempotencyKey), metadata,
	).Scan(&id)
	return id, err
}

// publishAllPostgres sends all events as one JSON document, the one array type every driver can
// send. A payload travels as a JSON string in it, so its bytes come out as they went in.
func publishAllPostgres[R Row](ctx context.Context, tx Tx[R], events []Event) ([]string, error) {
	type row struct {
		Tenant         string            `json:"tenant"`
		Type           string            `json:"type"`
		Payload        string            `json:"payload"`
		ID             string            `json:"id,omitempty"`
		OrderingKey    string            `json:"ordering_key,omitempty"`
		IdempotencyKey string            `json:"idempotency_key,omitempty"`
		Metadata       map[string]string `json:"metadata,omitempty"`
	}
	rows := make([]row, len(events))
	for i, e := range events {
		rows[i] = row{e.Tenant, e.Type, string(e.Payload), e.ID, e.OrderingKey, e.IdempotencyKey, e.Metadata}
	}
	document, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	var joined string
	err = tx.QueryRowContext(ctx, `
		SELECT string_agg(
			waybill.publish(
				tenant          => e.tenant,
				type            => e.type,
				payload         => e.payload,
				id              => e.id,
				ordering_key    => e.ordering_key,
				idempotency_key => e.idempotency_key,
				metadata        => e.metadata),
			' ' ORDER BY e.n)
		FROM ROWS FROM (json_to_recordset($1::text::json) AS (
			tenant text, type text, payload text, id text,
			ordering_key text, idempotency_key text, metadata jsonb)
		) WITH ORDINALITY AS e (tenant, type, payload, id, ordering_key, idempotency_key, metadata, n)`,
		string(document),
	).Scan(&joined)
	if err != nil {
		return nil, err
	}
	ids := strings.Split(joined, " ")
	if len(ids) != len(events) {
		return nil, fmt.Errorf("%d ids for %d events", len(ids), len(events))
	}
	return ids, nil
}

// metadataText is the metadata as JSON text, or nil for NULL.
func metadataText(metadata map[string]string) (any, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	return string(text), nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
