package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// BenchmarkStore_theWayOfAnEvent runs batches of events of 1 KB through a durable server and
// reports, for each step, the time the server's processes worked per event. That is what batching
// and indexes decide; wall time depends on the disk and on who else uses the machine. The
// small batches show what a transaction costs.
func BenchmarkStore_theWayOfAnEvent(b *testing.B) {
	for _, size := range []int{500, 50, 10} {
		b.Run(fmt.Sprintf("%d a transaction", size), func(b *testing.B) { wayOfAnEvent(b, size) })
	}
}

func wayOfAnEvent(b *testing.B, batchSize int) {
	const tenants = 20
	ctx := b.Context()
	server := pgtest.Start(b, nil)
	keys, err := keyring.New(keyring.NewKey())
	if err != nil {
		b.Fatal(err)
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: server.DSN(), MaxConns: 1, Keyring: keys})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	backend := newBackend(b, server.DSN())

	now := time.Now().UTC().Truncate(time.Microsecond)
	var endpoints []outbox.Endpoint
	for i := range tenants {
		tenant, _, err := store.PutTenant(ctx, fmt.Sprintf("tenant-%d", i), now, func(*outbox.Tenant, bool) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		e, _, err := store.PutEndpoint(ctx, tenant.TenantRef, outbox.EndpointRef{}, now, func(e *outbox.Endpoint, _ bool) error {
			e.URL, e.EventTypes, e.State, e.Timeout = "https://hooks.example.com/in", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		endpoints = append(endpoints, e)
	}
	node := outbox.NewNodeID(now)
	beat, err := store.Beat(ctx, node, false)
	if err != nil {
		b.Fatal(err)
	}
	lease, _, err := store.Take(ctx, node, beat.Shards)
	if err != nil {
		b.Fatal(err)
	}
	lease.Revisions = beat.Revisions

	payload := []byte(`"` + strings.Repeat("x", 1022) + `"`)
	sum := sha256.Sum256(payload)
	sequence := map[outbox.EndpointID]int64{}
	spent := map[string]time.Duration{}
	var events int
	for b.Loop() {
		now := time.Now().UTC().Truncate(time.Microsecond)
		batch := make([]outbox.NewEvent, batchSize)
		for i := range batch {
			batch[i] = outbox.NewEvent{Event: outbox.Event{
				ID: outbox.NewEventID(now), Tenant: endpoints[i%tenants].Tenant, Type: "payment.succeeded",
				Payload: payload, SHA256: sum, CreatedAt: now,
			}}
		}
		var accepted []outbox.Accepted
		backend.time(spent, "accept", func() error {
			accepted, _, err = store.InsertEvents(ctx, batch)
			return err
		})
		plans := make([]outbox.Plan, batchSize)
		next := map[outbox.EndpointID]int64{}
		results := make([]outbox.Result, batchSize)
		for i := range batch {
			e := &endpoints[i%tenants]
			sequence[e.ID]++
			next[e.ID] = sequence[e.ID] + 1
			d := outbox.Delivery{
				Shard: e.Tenant.Shard, ID: outbox.NewDeliveryID(batch[i].ID, e.ID), Tenant: e.Tenant.ID, Endpoint: e.ID,
				Event: batch[i].ID, EventType: batch[i].Type, Sequence: sequence[e.ID], NextAt: now, SendableAt: now,
			}
			plans[i] = outbox.Plan{
				Row:        outbox.OutboxRow{Shard: d.Shard, Pos: accepted[i].Pos, Tenant: d.Tenant, Event: d.Event},
				Deliveries: []outbox.Delivery{d}, Last: true, Matched: true,
			}
			results[i] = outbox.Result{Delivery: d, Delivered: true, At: now, Attempt: &outbox.Attempt{
				ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Duration: 3 * time.Millisecond,
				Timing: outbox.Timing{FirstByte: 2 * time.Millisecond}, URL: e.URL, Outcome: outbox.OutcomeDelivered, StatusCode: 200,
				RequestBytes: len(payload), ResponseBody: []byte("ok"),
				RequestHeaders: []outbox.Header{
					{Name: "Webhook-Id", Value: batch[i].ID.String()}, {Name: "Webhook-Timestamp", Value: "1796000000"},
					{Name: "Webhook-Signature", Value: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="},
					{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "Waybill/1"},
				},
				ResponseHeaders: []outbox.Header{{Name: "Content-Type", Value: "text/plain"}},
			}}
		}
		backend.time(spent, "route", func() error {
			routed, err := store.Route(ctx, lease, plans, next, now)
			if err == nil && len(routed.Gone)+len(routed.Stale) > 0 {
				err = fmt.Errorf("routed: %+v", routed)
			}
			return err
		})
		backend.time(spent, "finish", func() error {
			_, err := store.Finish(ctx, results)
			return err
		})
		events += batchSize
	}
	for step, d := range spent {
		b.ReportMetric(float64(d.Nanoseconds())/1e3/float64(events), step+"-µs/event")
	}
}

// BenchmarkPublish_inSQL compares waybill.publish with the bare insert of the same row, each in
// transactions of 100 and through one prepared statement.
func BenchmarkPublish_inSQL(b *testing.B) {
	server := pgtest.Start(b, nil)
	ctx := b.Context()
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `SELECT waybill.ensure_tenant('acme')`); err != nil {
		b.Fatal(err)
	}
	payload := `"` + strings.Repeat("x", 1022) + `"`
	for name, statement := range map[string]string{
		"bare": `
			INSERT INTO waybill.event (shard, tenant, id, type, payload, sha256, created_at)
			SELECT 1, 1, (lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid,
				'payment.succeeded', convert_to($1, 'UTF8'), sha256(convert_to($1, 'UTF8')), clock_timestamp()`,
		"publish": `SELECT waybill.publish(tenant => 'acme', type => 'payment.succeeded', payload => $1::text)`,
	} {
		b.Run(name, func(b *testing.B) {
			backend := &backend{tb: b, pids: []uint32{conn.PgConn().PID()}}
			spent := map[string]time.Duration{}
			var n int
			for b.Loop() {
				backend.time(spent, "server", func() error {
					tx, err := conn.Begin(ctx)
					if err != nil {
						return err
					}
					for range 100 {
						if _, err := tx.Exec(ctx, statement, payload); err != nil {
							return err
						}
					}
					return tx.Commit(ctx)
				})
				n += 100
			}
			b.ReportMetric(float64(spent["server"].Nanoseconds())/1e3/float64(n), "µs/event")
		})
	}
}

// backend reads how long the server's processes have worked.
type backend struct {
	tb   testing.TB
	pids []uint32
}

func newBackend(tb testing.TB, dsn string) *backend {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(tb.Context())
	rows, err := conn.Query(tb.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = 'waybill'`)
	if err != nil {
		tb.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		tb.Fatal(err)
	}
	k := &backend{tb: tb}
	for _, pid := range pids {
		k.pids = append(k.pids, uint32(pid))
	}
	return k
}

func (k *backend) time(spent map[string]time.Duration, step string, do func() error) {
	k.tb.Helper()
	before := k.worked()
	if err := do(); err != nil {
		k.tb.Fatal(err)
	}
	spent[step] += k.worked() - before
}

// worked is the processor time of the processes so far.
func (k *backend) worked() time.Duration {
	var sum time.Duration
	for _, pid := range k.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			k.tb.Skipf("processor time is read from /proc: %v", err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			k.tb.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}
