package dispatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// rig is a node on a real store, with a sender that a test scripts.
type rig struct {
	t      *testing.T
	store  *faulty
	clock  *outbox.Clock
	sender *scripted
	node   *Node
	stop   func() error

	notify  func(Notice)
	pending time.Duration // MaxPendingAge; 0: the default

	path string // of the database
	keys *keyring.Keyring
	log  *slog.Logger
}

// faulty is a store whose calls a test can make fail, before or after they were applied.
type faulty struct {
	outbox.Store
	mu     sync.Mutex
	route  func(apply func() (outbox.Routed, error)) (outbox.Routed, error)
	finish func(results []outbox.Result, apply func() (outbox.Finished, error)) (outbox.Finished, error)
	steps  int // how many steps of jobs may do anything; 0 and less: all
	frozen bool
	refuse error // what steps of jobs end with; nil: they do their work
}

func (f *faulty) StepJob(ctx context.Context, l outbox.Lease, job outbox.Job, limit int, spacing time.Duration, now time.Time) (outbox.JobStep, error) {
	f.mu.Lock()
	if refuse := f.refuse; refuse != nil {
		f.mu.Unlock()
		return outbox.JobStep{}, refuse
	}
	if f.frozen {
		limit = 0
	}
	if f.steps > 0 && limit > 0 {
		f.steps--
		f.frozen = f.steps == 0
	}
	f.mu.Unlock()
	return f.Store.StepJob(ctx, l, job, limit, spacing, now)
}

func (f *faulty) Route(ctx context.Context, l outbox.Lease, p []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	f.mu.Lock()
	hook := f.route
	f.mu.Unlock()
	apply := func() (outbox.Routed, error) { return f.Store.Route(ctx, l, p, next, now) }
	if hook != nil {
		return hook(apply)
	}
	return apply()
}

func (f *faulty) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	f.mu.Lock()
	hook := f.finish
	f.mu.Unlock()
	apply := func() (outbox.Finished, error) { return f.Store.Finish(ctx, results) }
	if hook != nil {
		return hook(results, apply)
	}
	return apply()
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// sent is a request the sender saw.
type sent struct {
	attempt.Request
	url string
}

// scripted answers attempts as a test says, and keeps what it saw.
type scripted struct {
	clock *outbox.Clock
	mu    sync.Mutex
	urls  map[*attempt.Target]string
	seen  []sent
	now   map[string]int // attempts under way, by URL
	most  map[string]int
	// answer says how an attempt ends; nil delivers it.
	answer func(ctx context.Context, s sent) attempt.Outcome
}

func (s *scripted) Prepare(e attempt.Endpoint) *attempt.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &attempt.Target{}
	s.urls[t] = e.URL
	return t
}

func (s *scripted) Do(ctx context.Context, r attempt.Request) attempt.Outcome {
	s.mu.Lock()
	x := sent{r, s.urls[r.Target]}
	s.seen = append(s.seen, x)
	s.now[x.url]++
	s.most[x.url] = max(s.most[x.url], s.now[x.url])
	answer := s.answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now[x.url]--
		s.mu.Unlock()
	}()
	if answer != nil {
		return s.fill(x, answer(ctx, x))
	}
	return s.fill(x, delivered())
}

func (s *scripted) fill(x sent, o attempt.Outcome) attempt.Outcome {
	at := s.clock.Now()
	o.ID, o.At, o.Trigger, o.URL, o.RequestBytes = outbox.NewAttemptID(at), at, x.Trigger, x.url, len(x.Payload)
	return o
}

func delivered() attempt.Outcome {
	return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeDelivered, StatusCode: 200}}
}

func failed(status int) attempt.Outcome {
	return attempt.Outcome{Attempt: outbox.Attempt{
		Outcome: outbox.OutcomeTransient, Kind: outbox.KindHTTPStatus, StatusCode: status, Message: "It failed.",
	}}
}

func (s *scripted) script(answer func(ctx context.Context, s sent) attempt.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// all returns what was sent so far.
func (s *scripted) all() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.seen...)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	keys, err := keyring.New(keyring.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	clock := &outbox.Clock{}
	r := &rig{
		t:     t,
		path:  filepath.Join(t.TempDir(), "test.db"),
		keys:  keys,
		log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		clock: clock,
		sender: &scripted{
			clock: clock,
			urls:  map[*attempt.Target]string{},
			now:   map[string]int{},
			most:  map[string]int{},
		},
	}
	if err := os.WriteFile(r.path, migrated, 0o600); err != nil {
		t.Fatal(err)
	}
	store := r.open()
	r.store = &faulty{Store: store}
	t.Cleanup(func() {
		r.halt()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// open opens the rig's database.
func (r *rig) open() *sqlite.Store {
	r.t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: r.path, Keyring: r.keys, Readers: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

// run starts a node; halt stops it.
func (r *rig) run() {
	r.t.Helper()
	r.runOn(r.store)
}

func (r *rig) runOn(store Store) {
	r.node = New(Config{
		Store:     store,
		Sender:    r.sender,
		Clock:     r.clock,
		Log:       r.log,
		Exclusive: true,
		Notify:    r.notify,
		Retry:     outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 100 * time.Millisecond},
		Grace:     5 * time.Second,

		MaxPendingAge: r.pending,
	})
	node := r.node
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func (r *rig) halt() {
	if r.stop == nil {
		return
	}
	if err := r.stop(); err != nil {
		r.t.Errorf("the node did not stop cleanly: %v", err)
	}
	r.stop = nil
}

func (r *rig) tenant(key string, edit func(t *outbox.Tenant)) outbox.TenantRef {
	r.t.Helper()
	tenant, _, err := r.store.PutTenant(r.t.Context(), key, r.clock.Now(), func(t *outbox.Tenant, _ bool) error {
		if edit != nil {
			edit(t)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return tenant.TenantRef
}

func (r *rig) endpoint(tenant outbox.TenantRef, uid string, edit func(e *outbox.Endpoint)) outbox.EndpointID {
	r.t.Helper()
	e, _, err := r.store.PutEndpoint(r.t.Context(), tenant, outbox.EndpointRef{UID: uid}, r.clock.Now(), func(e *outbox.Endpoint, _ bool) error {
		e.UID, e.URL, e.EventTypes, e.State = uid, "https://"+uid+".example/hook", []string{"*"}, outbox.EndpointActive
		e.Timeout = outbox.DefaultTimeout
		if edit != nil {
			edit(e)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return e.ID
}

func (r *rig) edit(tenant outbox.TenantRef, uid string, edit func(e *outbox.Endpoint)) {
	r.t.Helper()
	_, err := r.store.EditEndpoint(r.t.Context(), tenant, outbox.EndpointRef{UID: uid}, r.clock.Now(), func(e *outbox.Endpoint) ([]outbox.Command, error) {
		edit(e)
		return nil, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// publish stores n events; handed says whether the node gets them directly or has to find them.
func (r *rig) publish(tenant outbox.TenantRef, n int, handed bool) []outbox.EventID {
	r.t.Helper()
	now := r.clock.Now()
	events := make([]outbox.NewEvent, n)
	ids := make([]outbox.EventID, n)
	for i := range events {
		ids[i] = outbox.NewEventID(now)
		payload := fmt.Appendf(nil, `{ "n": %d, "e": "%s" }`, i, ids[i])
		events[i].Event = outbox.Event{
			ID: ids[i], Tenant: tenant, Type: "test.event", Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
		}
	}
	accepted, conflicts, err := r.store.InsertEvents(r.t.Context(), events)
	if err != nil || len(conflicts) > 0 {
		r.t.Fatal(err, conflicts)
	}
	if handed {
		rows := make([]outbox.OutboxRow, n)
		for i := range rows {
			rows[i] = outbox.OutboxRow{
				Shard: tenant.Shard, Pos: accepted[i].Pos, Tenant: tenant.ID, Event: ids[i],
				Source: &events[i].Event, HasPayload: true,
			}
		}
		r.node.Offer(rows)
	}
	return ids
}

// eventually waits for a condition, a minute at most: the race detector and a busy machine are slow.
func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			r.t.Fatalf("%s: not after a minute; %d attempts were made", what, len(r.sender.all()))
		case <-tick.C:
		}
	}
}

// states counts a tenant's deliveries by state.
func (r *rig) states(tenant outbox.TenantRef) map[outbox.DeliveryState]int {
	r.t.Helper()
	count := map[outbox.DeliveryState]int{}
	var after outbox.DeliveryID
	for {
		rows, next, err := r.store.Deliveries(r.t.Context(), outbox.DeliveryQuery{Tenant: tenant, After: after}, outbox.Page{Limit: 250})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, d := range rows {
			count[d.State]++
		}
		if next.IsZero() {
			return count
		}
		after = next
	}
}

// settled waits until every delivery of the tenant has one of the given states, n in all.
func (r *rig) settled(tenant outbox.TenantRef, want map[outbox.DeliveryState]int) {
	r.t.Helper()
	var got map[outbox.DeliveryState]int
	r.eventually(fmt.Sprintf("states %v", want), func() bool {
		got = r.states(tenant)
		if len(got) != len(want) {
			return false
		}
		for state, n := range want {
			if got[state] != n {
				return false
			}
		}
		return true
	})
}

// balanced proves the books, to the last number.
func (r *rig) balanced() {
	r.t.Helper()
	report, err := r.store.Verify(r.t.Context(), true)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range report.Checks {
		for _, b := range c.Broken {
			r.t.Errorf("%s: %s: %d and %d", c.Name, b.Where, b.Left, b.Right)
		}
	}
}

var errCut = &outbox.WriteError{Fault: outbox.FaultUnknown, Err: errors.New("the connection was cut")}
