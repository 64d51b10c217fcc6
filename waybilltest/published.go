package waybilltest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// RequirePublished fails the test at once unless every wanted event is among those db shows as
// published, each one its own, and returns the events found, in the order of want. db is what was
// given to Publish, or anything that sees its rows: the open transaction itself, or the database
// after the commit.
//
// A field of a wanted event that is set must match exactly, the payload byte by byte; one that is
// not set matches anything. IdempotencyKey and Metadata cannot be wanted: they are not shown.
// Events nobody wanted are passed over; RequireNothingPublished asks for none.
func RequirePublished[R waybill.Row](t testing.TB, db waybill.Tx[R], want ...waybill.Event) []waybill.Event {
	t.Helper()
	got := Published(t, db)
	found, missing := match(got, want)
	if len(missing) > 0 {
		t.Fatalf("not published:\n%spublished:\n%s", list(missing), list(got))
	}
	return found
}

// RequireNothingPublished fails the test at once if db shows any published event.
func RequireNothingPublished[R waybill.Row](t testing.TB, db waybill.Tx[R]) {
	t.Helper()
	if got := Published(t, db); len(got) > 0 {
		t.Fatalf("published, though nothing should be:\n%s", list(got))
	}
}

// Published returns every event db shows as published, in the order of publication. IdempotencyKey
// and Metadata are empty: they are not shown.
func Published[R waybill.Row](t testing.TB, db waybill.Tx[R]) []waybill.Event {
	t.Helper()
	// SQLite does not know the schema waybill; its refusal leaves the transaction as it was.
	ctx := t.Context()
	var document string
	var sqlite bool
	if err := db.QueryRowContext(ctx, publishedPostgres).Scan(&document); err != nil {
		sqlite = db.QueryRowContext(ctx, publishedSQLite).Scan(&document) == nil
		if !sqlite {
			t.Fatalf("waybilltest: read what was published: %v", err)
		}
	}
	var rows []struct {
		ID          string `json:"id"`
		Tenant      string `json:"tenant"`
		Type        string `json:"type"`
		Payload     string `json:"payload"`
		OrderingKey string `json:"ordering_key"`
	}
	if err := json.Unmarshal([]byte(document), &rows); err != nil {
		t.Fatalf("waybilltest: read what was published: %v", err)
	}
	events := make([]waybill.Event, len(rows))
	for i, r := range rows {
		if sqlite {
			// The file holds ids as bytes, the schema of PostgreSQL shows them as they are written.
			raw, err := hex.DecodeString(r.ID)
			if err != nil || len(raw) != len(outbox.EventID{}) {
				t.Fatalf("waybilltest: the event id %q in the database is none", r.ID)
			}
			r.ID = outbox.EventID(raw).String()
		}
		events[i] = waybill.Event{ID: r.ID, Tenant: r.Tenant, Type: r.Type, Payload: []byte(r.Payload), OrderingKey: r.OrderingKey}
	}
	return events
}

// One row of text, because one row is all a waybill.Tx can be asked for. The payload is a string
// in it, so its bytes come out as they went in.
const (
	publishedPostgres = `
		SELECT coalesce(json_agg(json_build_object(
			'id', id, 'tenant', tenant, 'type', type, 'payload', payload, 'ordering_key', ordering_key
		) ORDER BY created_at, id), '[]')::text
		FROM waybill.published`
	publishedSQLite = `
		SELECT json_group_array(json_object(
			'id', hex(id), 'tenant', tenant, 'type', type, 'payload', payload, 'ordering_key', ordering_key
		))
		FROM (
			SELECT e.id, t.key AS tenant, e.type, CAST(e.payload AS TEXT) AS payload, e.ordering_key
			FROM waybill_event AS e
			JOIN waybill_tenant AS t ON t.id = e.tenant
			ORDER BY e.rowid
		)`
)

// match pairs wanted events with published ones, as many as can be paired: a want that fits many
// gives way to one that fits few (augmenting paths, as in every bipartite matching).
func match(got, want []waybill.Event) (found, missing []waybill.Event) {
	wantOf := make([]int, len(got)) // the want that holds each published event, -1 for none
	for i := range wantOf {
		wantOf[i] = -1
	}
	var place func(w int, tried []bool) bool
	place = func(w int, tried []bool) bool {
		for g := range got {
			if tried[g] || !fits(got[g], want[w]) {
				continue
			}
			tried[g] = true
			if wantOf[g] < 0 || place(wantOf[g], tried) {
				wantOf[g] = w
				return true
			}
		}
		return false
	}
	for w := range want {
		if !place(w, make([]bool, len(got))) {
			missing = append(missing, want[w])
		}
	}
	gotOf := make(map[int]waybill.Event, len(want))
	for g, w := range wantOf {
		if w >= 0 {
			gotOf[w] = got[g]
		}
	}
	for w := range want {
		if e, ok := gotOf[w]; ok {
			found = append(found, e)
		}
	}
	return found, missing
}

func fits(got, want waybill.Event) bool {
	return (want.ID == "" || want.ID == got.ID) &&
		(want.Tenant == "" || want.Tenant == got.Tenant) &&
		(want.Type == "" || want.Type == got.Type) &&
		(want.OrderingKey == "" || want.OrderingKey == got.OrderingKey) &&
		(want.Payload == nil || bytes.Equal(want.Payload, got.Payload)) &&
		want.IdempotencyKey == "" && want.Metadata == nil
}

func list(events []waybill.Event) string {
	if len(events) == 0 {
		return "  (nothing)\n"
	}
	var b strings.Builder
	for _, e := range events {
		b.WriteString("  ")
		for _, field := range []struct{ name, value string }{
			{"id", e.ID}, {"tenant", e.Tenant}, {"type", e.Type}, {"ordering key", e.OrderingKey},
			{"payload", string(e.Payload)}, {"idempotency key (not shown, cannot be wanted)", e.IdempotencyKey},
		} {
			if field.value != "" {
				fmt.Fprintf(&b, "%s %s  ", field.name, field.value)
			}
		}
		if e.Metadata != nil {
			b.WriteString("metadata (not shown, cannot be wanted)")
		}
		b.WriteString("\n")
	}
	return b.String()
}
