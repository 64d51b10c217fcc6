package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// newStore opens a store in a new file.
func newStore(t *testing.T) *Store {
	t.Helper()
	return storeAt(t, filepath.Join(t.TempDir(), "waybill.db"))
}

func storeAt(t *testing.T, path string) *Store {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Path: path, Keyring: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newTenant(t *testing.T, s *Store) outbox.TenantRef {
	t.Helper()
	tenant, _, err := s.PutTenant(t.Context(), "acme", time.Now(), func(*outbox.Tenant, bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return tenant.TenantRef
}

func newEvent(tenant outbox.TenantRef) outbox.NewEvent {
	now := time.Now().UTC().Truncate(time.Microsecond)
	payload := []byte(`{"n":1}`)
	return outbox.NewEvent{Event: outbox.Event{
		ID: outbox.NewEventID(now), Tenant: tenant, Type: "a.b", Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
	}}
}

// count runs a query of one number in a read of its own.
func (s *Store) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := s.read(t.Context(), func(r *session) error { return r.get(query, args, &n) }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpen_everyConnectionIsDurable(t *testing.T) {
	s := newStore(t)
	pragmas := map[string]string{"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000"}
	look := func(r *session) error {
		for pragma, want := range pragmas {
			var got string
			if err := r.get("PRAGMA "+pragma, nil, &got); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s = %s, want %s", pragma, got, want)
			}
		}
		return nil
	}
	if err := s.write(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	// All readers at once, so that each is another connection.
	var all sync.WaitGroup
	together := make(chan struct{})
	var inside sync.WaitGroup
	inside.Add(cap(s.pool))
	for range cap(s.pool) {
		all.Go(func() {
			if err := s.read(t.Context(), func(r *session) error {
				inside.Done()
				<-together
				return look(r)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	inside.Wait()
	close(together)
	all.Wait()
}

func TestOpen_newFilesAreForTheirOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	newTenant(t, storeAt(t, path))
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", filepath.Base(name), mode)
		}
	}
	if _, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "nowhere", "waybill.db")}); err == nil {
		t.Error("a file in no directory was opened")
	}
}

func TestOpen_manyAtOnceMakeTheTablesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := storeAt(t, path)
	if n := s.count(t, "SELECT count(*) FROM waybill_shard"); n != outbox.Shards {
		t.Errorf("%d shards, want %d", n, outbox.Shards)
	}
}

func TestOpen_migrationsGoDownAndUpAgain(t *testing.T) {
	s := newStore(t)
	tables := func() int {
		return s.count(t, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'waybill_%' AND name NOT LIKE 'waybill_migration%'")
	}
	before := tables()
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.writes, migrationFiles(), goose.WithTableName(migrationTable))
	if err != nil {
		t.Fatal(err)
	}
	// The writer holds the one connection it may have until it is stopped.
	s.writer.stop()
	if _, err := provider.DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n := tables(); n != 0 {
		t.Errorf("%d tables, indexes and triggers are left", n)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := tables(); n != before {
		t.Errorf("%d tables, indexes and triggers, want %d", n, before)
	}
}

func TestStore_aLongReaderHoldsNobodyUp(t *testing.T) {
	s := newStore(t)
	tenant := newTenant(t, s)
	const events = "SELECT count(*) FROM waybill_event"
	if err := s.read(t.Context(), func(r *session) error {
		var before, after int
		if err := r.get(events, nil, &before); err != nil {
			return err
		}
		for range 20 {
			if _, _, err := s.InsertEvents(t.Context(), []outbox.NewEvent{newEvent(tenant)}); err != nil {
				return err
			}
		}
		if n := s.count(t, events); n != 20 {
			t.Errorf("another reader sees %d events, want 20", n)
		}
		if err := r.get(events, nil, &after); err != nil {
			return err
		}
		if before != 0 || after != 0 {
			t.Errorf("a read saw %d, then %d: it is not of one moment", before, after)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStore_waitsForAWriterOutside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	s := storeAt(t, path)
	tenant := newTenant(t, s)
	outside, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	tx, err := outside.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE waybill_setting SET max_payload = 1000"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, _, err := s.InsertEvents(t.Context(), []outbox.NewEvent{newEvent(tenant)})
		done <- err
	}()
	if n := s.count(t, "SELECT count(*) FROM waybill_event"); n != 0 {
		t.Errorf("%d events before the other writer is done", n)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStore_isClosedForEveryone(t *testing.T) {
	s := newStore(t)
	tenant := newTenant(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("a closed store answers")
	}
	_, _, err := s.InsertEvents(t.Context(), []outbox.NewEvent{newEvent(tenant)})
	if outbox.FaultOf(err) != outbox.FaultRetry {
		t.Errorf("a write to a closed store: %v, want a fault to retry", err)
	}
}

// What runs for every event, or every second, must find its rows by an index: a scan is cheap in
// a test and stops a server with a million rows.
func TestStore_hotStatementsUseIndexes(t *testing.T) {
	s := newStore(t)
	ctx, now := t.Context(), time.Now().UTC()
	tenant := newTenant(t, s)
	if _, _, err := s.PutEndpoint(ctx, tenant, outbox.EndpointRef{}, now, func(e *outbox.Endpoint, _ bool) error {
		e.URL, e.State, e.Timeout = "https://example.com", outbox.EndpointActive, time.Second
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	walk(ctx, t, s, tenant, now)

	var statements []string
	if err := s.write(ctx, func(w *session) error {
		for query := range w.stmts {
			statements = append(statements, query)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range cap(s.pool) {
		if err := s.read(ctx, func(r *session) error {
			for query := range r.stmts {
				statements = append(statements, query)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(statements)
	statements = slices.Compact(statements)
	if len(statements) < 40 {
		t.Fatalf("only %d statements were seen", len(statements))
	}
	small := []string{"waybill_node", "waybill_shard", "waybill_shard_config", "waybill_setting", "waybill_retired", "waybill_ledger", "waybill_ledger_event", "waybill_source"}
	for _, query := range statements {
		if upper := strings.ToUpper(strings.TrimSpace(query)); !strings.HasPrefix(upper, "SELECT") && !strings.HasPrefix(upper, "INSERT") &&
			!strings.HasPrefix(upper, "UPDATE") && !strings.HasPrefix(upper, "DELETE") {
			continue
		}
		for _, step := range explain(t, s, query) {
			name, scans := strings.CutPrefix(step, "SCAN ")
			name, _, _ = strings.Cut(name, " ")
			if scans && strings.HasPrefix(name, "waybill_") && !slices.Contains(small, name) && !strings.Contains(step, "USING") {
				t.Errorf("%s in %s", step, query)
			}
			if strings.Contains(step, "TEMP B-TREE FOR ORDER") && !strings.Contains(query, "waybill_tenant t") && !strings.Contains(query, "waybill_endpoint e") {
				t.Errorf("%s in %s", step, query)
			}
		}
	}
}

func explain(t *testing.T, s *Store, query string) (steps []string) {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	if err := s.read(t.Context(), func(r *session) error {
		rows, err := r.conn.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, query)
		}
		return r.drain(rows, func(scan scan) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			steps = append(steps, detail)
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	return steps
}

// walk takes one event all the way, twice, and what a node does every second.
func walk(ctx context.Context, t *testing.T, s *Store, tenant outbox.TenantRef, now time.Time) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node := outbox.NewNodeID(now)
	check(s.Join(ctx, node, now))
	beat, err := s.Beat(ctx, node, false)
	check(err)
	lease, _, err := s.Take(ctx, node, beat.Shards)
	check(err)
	lease.Revisions = beat.Revisions
	config, err := s.LoadConfig(ctx, leased(lease))
	check(err)
	endpoint := config.Endpoints[0]
	for sequence := int64(1); sequence <= 3; sequence++ {
		e := newEvent(tenant)
		e.IdempotencyKey, e.Chosen = fmt.Sprint(sequence), true
		for range 2 {
			_, _, err := s.InsertEvents(ctx, []outbox.NewEvent{e})
			check(err)
		}
		_, err = s.OutboxTip(ctx)
		check(err)
		rows, err := s.ReadOutbox(ctx, leased(lease), make([]int64, len(lease.Epochs)), 10)
		check(err)
		check(s.ReadEvents(ctx, rows, 1<<20))
		_, err = s.NextSequences(ctx, map[outbox.EndpointID]outbox.Shard{endpoint.ID: tenant.Shard})
		check(err)
		d := outbox.Delivery{
			Shard: tenant.Shard, ID: outbox.NewDeliveryID(e.ID, endpoint.ID), Tenant: tenant.ID, Endpoint: endpoint.ID, Event: e.ID,
			EventType: e.Type, Sequence: sequence, NextAt: now, SendableAt: now,
		}
		plan := outbox.Plan{Row: rows[0], Deliveries: []outbox.Delivery{d}, Matched: true}
		_, err = s.Route(ctx, lease, []outbox.Plan{plan}, map[outbox.EndpointID]int64{endpoint.ID: sequence + 1}, now)
		check(err)
		plan = outbox.Plan{Row: rows[0], Last: true, Matched: true}
		plan.Row.After = endpoint.ID
		_, err = s.Route(ctx, lease, []outbox.Plan{plan}, nil, now)
		check(err)
		_, err = s.Heads(ctx, leased(lease))
		check(err)
		_, err = s.FetchDue(ctx, []outbox.FetchRequest{{Shard: d.Shard, Endpoint: d.Endpoint, Limit: 5}}, now, 1<<20)
		check(err)
		try := &outbox.Attempt{ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Outcome: outbox.OutcomeTransient}
		result := outbox.Result{Delivery: d, Attempt: try, RetryAt: now, At: now}
		_, err = s.Finish(ctx, []outbox.Result{result})
		check(err)
		result.Delivery.Attempt, result.RetryAt = 1, time.Time{}
		try.ID = outbox.NewAttemptID(now)
		if sequence == 1 {
			try.Outcome, result.Delivered = outbox.OutcomeDelivered, true
		} else {
			try.Outcome, result.Dead = outbox.OutcomePermanent, outbox.DeadPermanent
		}
		_, err = s.Finish(ctx, []outbox.Result{result})
		check(err)
		_, err = s.Delivery(ctx, tenant, d.ID)
		check(err)
		_, err = s.Event(ctx, tenant, e.ID)
		check(err)
		_, err = s.RequestReplay(ctx, tenant, d.ID)
		check(err)
		rows, err = s.ReadOutbox(ctx, leased(lease), make([]int64, len(lease.Epochs)), 10)
		check(err)
		_, err = s.Replay(ctx, lease, rows, now)
		check(err)
	}
	_, err = s.Expire(ctx, lease, now.Add(-time.Hour), 10, now)
	check(err)
	_, err = s.DeleteEndpoint(ctx, tenant, outbox.EndpointRef{ID: endpoint.ID}, now, 10)
	check(err)
	rows, err := s.ReadOutbox(ctx, leased(lease), make([]int64, len(lease.Epochs)), 10)
	check(err)
	_, _, err = s.Cancel(ctx, lease, rows[0], 10, now)
	check(err)
	check(s.Maintain(ctx, outbox.Maintenance{Now: now.Add(48 * time.Hour), Retention: 24 * time.Hour, IdempotencyRetention: time.Hour}))
}
