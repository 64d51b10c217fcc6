package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/session"
	"github.com/waybill-dev/waybill/internal/sqlite"
	"github.com/waybill-dev/waybill/internal/thin"
	"github.com/waybill-dev/waybill/internal/traffic"
)

// fixture is the API over a real store.
type fixture struct {
	t       *testing.T
	handler http.Handler
	store   outbox.Store
	broken  *breakable
	clock   *outbox.Clock
	log     *bytes.Buffer
	thin    *thin.Links
	owner   outbox.Lease
	tail    map[outbox.Shard]int64

	sessions *session.Manager
}

const (
	operatorKey = "op_0123456789abcdef"
	acmeKey     = "key_of_acme"
	readKey     = "key_that_reads"
	writeKey    = "key_that_writes"
	noScopeKey  = "key_without_scopes"
)

// testKeys are keys with names that say what they may do.
type testKeys struct{}

func (testKeys) Find(_ context.Context, key string) (outbox.Key, bool, error) {
	switch key {
	case acmeKey:
		return outbox.Key{Name: "acme's", TenantKey: "acme", Scopes: []Scope{ScopeRead, ScopeWrite, ScopePublish, ScopeListen}}, true, nil
	case readKey:
		return outbox.Key{Name: "reader", Scopes: []Scope{ScopeRead}}, true, nil
	case writeKey:
		return outbox.Key{Name: "writer", Scopes: []Scope{ScopeWrite}}, true, nil
	case noScopeKey:
		return outbox.Key{Name: "nobody"}, true, nil
	}
	return outbox.Key{}, false, nil
}

func (testKeys) Forget() {}

type testGuard struct{ *egress.Guard }

func (testGuard) CheckHeaders(h map[string]string) (map[string]string, error) {
	return attempt.CheckHeaders(h, "waybill-")
}

type testPreviewer struct{ sender *attempt.Sender }

func (p testPreviewer) Preview(r *Previewed) (attempt.Preview, error) {
	target := p.sender.Prepare(attempt.Of(r.Endpoint, r.Tenant, r.Endpoint.Retry, r.Book))
	return p.sender.Preview(attempt.Request{Target: target, Event: r.Event.ID, EventType: r.Event.Type, N: r.N, Sequence: r.Sequence, Payload: r.Event.Payload, Metadata: r.Event.Metadata})
}

// newFixture is the API over SQLite.
func newFixture(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	return newFixtureOn(t, openSQLite(t), change...)
}

// onBoth runs a test on either store. What people see of one must be what they see of the other.
func onBoth(t *testing.T, run func(t *testing.T, f *fixture), change ...func(*Config)) {
	t.Run("SQLite", func(t *testing.T) { run(t, newFixture(t, change...)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a server")
		}
		store, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.DSN(t), Keyring: newKeyring(t)})
		must(t, err)
		run(t, newFixtureOn(t, store, change...))
	})
}

// endedFeed gives readers that are at their end, so that a stream is an answer like any other.
type endedFeed struct{}

func (endedFeed) Read(tenant outbox.TenantID) (*traffic.Reader, bool) {
	feed := traffic.NewFeed()
	reader, ok := feed.Read(tenant)
	feed.Close()
	return reader, ok
}

func openSQLite(t *testing.T) outbox.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "waybill.db"), Keyring: newKeyring(t)})
	must(t, err)
	return store
}

func newKeyring(t *testing.T) *keyring.Keyring {
	t.Helper()
	keys, err := keyring.New(keyring.NewKey())
	must(t, err)
	return keys
}

func newFixtureOn(t *testing.T, store outbox.Store, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: store, broken: &breakable{store, &trouble{}}, clock: &outbox.Clock{}, log: &bytes.Buffer{}, tail: map[outbox.Shard]int64{}}
	guard, err := egress.New(egress.Config{Policy: egress.Policy{Schemes: []string{"http", "https"}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Store:        f.broken,
		Guard:        testGuard{guard},
		Clock:        f.clock,
		Log:          slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		BootstrapKey: operatorKey,
		Keys:         testKeys{},
		Version:      "v1.2.3",

		FailuresPerSecond: -1, // tests try many
		Feed:              endedFeed{},
	}
	committer := publish.New(publish.Config{Store: f.broken, RetryFor: time.Millisecond})
	cfg.Publisher = committer
	base := func() *url.URL { return &url.URL{Scheme: "https", Host: "hooks.example.com"} }
	f.sessions = session.New(session.Config{Store: f.broken, Clock: f.clock, Portal: base, Dashboard: base})
	cfg.Links = f.sessions
	cfg.Thin = thin.New(base, [][]byte{[]byte("a key of the fixture")})
	f.thin = cfg.Thin
	cfg.Previewer = testPreviewer{attempt.New(attempt.Config{Guard: guard, Clock: f.clock})}
	for _, c := range change {
		c(&cfg)
	}
	if f.handler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.broken.fail(nil)
		if err := committer.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		guard.Close()
	})
	return f
}

// reply is an answer.
type reply struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   []byte
}

// call sends a request with the operator's key. Extra headers are given as name, value, …; a
// value of "-" removes the header.
func (f *fixture) call(method, path string, body any, headers ...string) *reply {
	f.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader = b
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			f.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	r := httptest.NewRequestWithContext(f.t.Context(), method, path, reader)
	r.Header.Set("Authorization", "Bearer "+operatorKey)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "-" {
			r.Header.Del(headers[i])
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	a := &reply{t: f.t, what: method + " " + path, status: w.Code, header: w.Header(), body: w.Body.Bytes()}
	seen.check(f.t, r, a)
	return a
}

// want fails unless the status is the given one.
func (a *reply) want(status int) *reply {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d; body %s", a.what, a.status, status, a.body)
	}
	return a
}

// wantProblem fails unless the answer is a problem with the code.
func (a *reply) wantProblem(status int, code Code) problem {
	a.t.Helper()
	a.want(status)
	p := a.problem()
	if p.Code != code {
		a.t.Fatalf("%s: code %q, want %q; body %s", a.what, p.Code, code, a.body)
	}
	return p
}

// problem is a problem document as a client reads it.
type problem struct {
	Type, Title, Detail string
	Status              int
	Code                Code
	RequestID           string `json:"request_id"`
	Errors              []Item
}

func (a *reply) problem() problem {
	a.t.Helper()
	var p problem
	a.into(&p)
	return p
}

func (a *reply) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
}

// json returns the answer as generic JSON.
func (a *reply) json() map[string]any {
	a.t.Helper()
	var m map[string]any
	a.into(&m)
	return m
}

// get walks into the answer's JSON: get("data", 0, "id").
func (a *reply) get(path ...any) any {
	a.t.Helper()
	var v any
	a.into(&v)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				a.t.Fatalf("%s: no object at %q in %s", a.what, step, a.body)
			}
			v = m[step]
		case int:
			l, ok := v.([]any)
			if !ok || step >= len(l) {
				a.t.Fatalf("%s: no element %d in %s", a.what, step, a.body)
			}
			v = l[step]
		}
	}
	return v
}

func (a *reply) text(path ...any) string {
	a.t.Helper()
	s, ok := a.get(path...).(string)
	if !ok {
		a.t.Fatalf("%s: %v is no string in %s", a.what, path, a.body)
	}
	return s
}

// tick waits for the next millisecond, so that ids made before and after sort in that order.
func (f *fixture) tick() {
	for began := f.clock.Now().UnixMilli(); f.clock.Now().UnixMilli() == began; {
		runtime.Gosched()
	}
}

// later lets time pass.
func (f *fixture) later(by time.Duration) { f.clock.Set(f.clock.Now().Add(by), time.Now()) }

// tenant makes a tenant.
func (f *fixture) tenant(key string) {
	f.t.Helper()
	f.call("PUT", "/v1/tenants/"+key, `{}`).want(http.StatusCreated)
}

// endpoint makes an endpoint and returns its id.
func (f *fixture) endpoint(tenant, fields string) string {
	f.t.Helper()
	f.tick()
	body := `{"url":"https://hooks.example.com/in"`
	if fields != "" {
		body += "," + fields
	}
	return f.call("POST", "/v1/tenants/"+tenant+"/endpoints", body+"}").want(http.StatusCreated).text("id")
}

// publish publishes an event and returns its id.
func (f *fixture) publish(tenant, eventType, payload string) string {
	f.t.Helper()
	f.tick()
	return f.call("POST", "/v1/tenants/"+tenant+"/events", `{"type":"`+eventType+`","payload":`+payload+`}`).want(http.StatusAccepted).text("id")
}

// route does a shard owner's work: everything in the outbox is planned for the endpoints that
// match, and asked-for replays are planned. It returns the deliveries planned.
func (f *fixture) route() []outbox.Delivery {
	f.t.Helper()
	ctx, now := f.t.Context(), f.clock.Now()
	if f.owner.Epochs == nil {
		node := outbox.NewNodeID(now)
		must(f.t, f.store.Join(ctx, node, now))
		beat, err := f.store.Beat(ctx, node, false)
		must(f.t, err)
		f.owner, _, err = f.store.Take(ctx, node, beat.Shards)
		must(f.t, err)
	}
	var shards []outbox.Shard
	for shard := range f.owner.Epochs {
		shards = append(shards, shard)
	}
	after := make([]int64, len(shards))
	rows, err := f.store.ReadOutbox(ctx, shards, after, 10_000)
	must(f.t, err)
	must(f.t, f.store.ReadEvents(ctx, rows, 1<<20))
	config, err := f.store.LoadConfig(ctx, shards)
	must(f.t, err)
	endpoints := config.Endpoints
	f.owner.Revisions = config.Revisions
	shardOf := map[outbox.EndpointID]outbox.Shard{}
	for i := range endpoints {
		shardOf[endpoints[i].ID] = endpoints[i].Tenant.Shard
	}
	next, err := f.store.NextSequences(ctx, shardOf)
	must(f.t, err)

	var plans []outbox.Plan
	var replays []outbox.OutboxRow
	var planned []outbox.Delivery
	for _, row := range rows {
		switch row.Kind {
		case outbox.OutboxReplay:
			replays = append(replays, row)
			continue
		case outbox.OutboxCommand:
			if !row.Command.Job.IsZero() && row.Command.Name != outbox.CommandCancelTenant {
				f.runJob(row)
				continue
			}
			if row.Command.Name == outbox.CommandForget {
				must(f.t, f.store.EndCommand(ctx, f.owner, row))
				continue
			}
			if row.Command.Name == outbox.CommandProbe {
				_, err := f.store.HastenOldest(ctx, f.owner, row, now)
				must(f.t, err)
				continue
			}
			_, _, err := f.store.Cancel(ctx, f.owner, row, 10_000, now)
			must(f.t, err)
			continue
		}
		plan := outbox.Plan{Row: row, Last: true}
		for i := range endpoints {
			e := &endpoints[i]
			if row.Source == nil || e.Tenant.ID != row.Tenant {
				continue
			}
			if row.Endpoint.IsZero() && (!e.State.Routes() || !e.Matches(row.Source.Type)) || !row.Endpoint.IsZero() && e.ID != row.Endpoint {
				continue
			}
			plan.Matched = true
			plan.Deliveries = append(plan.Deliveries, outbox.Delivery{
				Shard: row.Shard, ID: outbox.NewDeliveryID(row.Event, e.ID), Tenant: row.Tenant, Endpoint: e.ID, Event: row.Event,
				EventType: row.Source.Type, Sequence: next[e.ID], NextAt: now, SendableAt: now,
			})
			next[e.ID]++
		}
		plans = append(plans, plan)
		planned = append(planned, plan.Deliveries...)
	}
	if len(plans) > 0 {
		routed, err := f.store.Route(ctx, f.owner, plans, next, now)
		must(f.t, err)
		if len(routed.Gone)+len(routed.Stale) > 0 {
			f.t.Fatalf("nothing was routed: %+v", routed)
		}
	}
	if len(replays) > 0 {
		again, err := f.store.Replay(ctx, f.owner, replays, now)
		must(f.t, err)
		planned = append(planned, again...)
	}
	return planned
}

// finish records one attempt of a delivery: a 2xx, a retry in an hour, or a dead letter.
func (f *fixture) finish(d outbox.Delivery, status int, dead outbox.DeadReason, retry bool) {
	f.t.Helper()
	now := f.clock.Now()
	at := &outbox.Attempt{
		ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Duration: 12500 * time.Microsecond,
		URL: "https://hooks.example.com/in", Outcome: outbox.OutcomeDelivered, StatusCode: status,
		RequestHeaders:  []outbox.Header{{Name: "Webhook-Id", Value: d.Event.String()}},
		RequestBytes:    2,
		ResponseHeaders: []outbox.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "Vary", Value: "a"}, {Name: "Vary", Value: "b"}},
		ResponseBody:    []byte("said the receiver"),
	}
	result := outbox.Result{Delivery: d, Attempt: at, At: now, Delivered: dead == "" && !retry, Dead: dead}
	if !result.Delivered {
		at.Outcome, at.Kind, at.Message = outbox.OutcomePermanent, outbox.KindHTTPStatus, "The receiver answered with an error."
	}
	if retry {
		at.Outcome = outbox.OutcomeTransient
		result.RetryAt = now.Add(time.Hour)
	}
	_, err := f.store.Finish(f.t.Context(), []outbox.Result{result})
	must(f.t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// path is fmt.Sprintf for addresses.
func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func mustURL(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return u
}
