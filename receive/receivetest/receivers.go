package receivetest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
)

// Bench is what TestReceivers puts receivers on: a store, and what can be done to it behind its back.
type Bench struct {
	Claims receive.ClaimStore // nil: it serves no Sync
	Inbox  receive.InboxStore // nil: it serves no Inbox
	// Advance lets the store's clock run by that much (a store on a database may move its rows'
	// times back instead).
	Advance func(time.Duration)
	// Wipe forgets everything, as an eviction, or a failover that lost what was written, does. Nil: it
	// cannot.
	Wipe func()
	// Tx is a handler that has one effect, in the transaction that makes the event done, and Effects
	// counts them. Nil: the store has no transactions.
	Tx      receive.Handler
	Effects func() int
	// Newer is the store's order guard, in a transaction of its own that is committed. Nil: it has
	// none.
	Newer func(object string, v receive.Version) bool
}

// TestReceivers holds Sync and Inbox, on a store, to twenty scenarios in which receivers lose events
// or handle them twice: crashes at every line, overtaken runs, twins, a store that is down, slow,
// wiped, or answers without being heard, forged, huge and odd requests, rotation, spoofed ids, late
// redelivery, batches. What the store itself promises is TestClaimStore's and TestInboxStore's.
//
// open returns an empty store.
func TestReceivers(t *testing.T, open func(t *testing.T) Bench) {
	for _, s := range scenarios {
		t.Run(s.says, func(t *testing.T) {
			b := open(t)
			if s.sync != nil && b.Claims != nil {
				t.Run("Sync", func(t *testing.T) { s.sync(newStage(t, b)) })
				b = open(t)
			}
			if s.inbox != nil && b.Inbox != nil {
				t.Run("Inbox", func(t *testing.T) { s.inbox(newStage(t, b)) })
			}
		})
	}
}

// scenario is one way to lose an event, or to handle it twice.
type scenario struct {
	says        string
	sync, inbox func(*stage)
}

var scenarios = []scenario{
	{"01 crash after the claim", syncCrashAfterClaim, inboxCrashAfterTake},
	{"02 crash after the effect", syncCrashAfterEffect, inboxCrashAfterEffect},
	{"03 the answer is lost after the commit", syncAnswerLost, inboxAnswerLost},
	{"04 failure after the provider hung up", syncFailureAfterHangUp, nil},
	{"05 an overtaken run releases late", func(s *stage) { syncOvertaken(s, errLate) }, func(s *stage) { inboxOvertaken(s, errLate) }},
	{"06 an overtaken run confirms late", func(s *stage) { syncOvertaken(s, nil) }, func(s *stage) { inboxOvertaken(s, nil) }},
	{"07 a handler ignores its context", syncIgnoresContext, nil},
	{"08 a hundred at once", syncHundred, inboxHundred},
	{"09 the store is down", syncStoreDown, inboxStoreDown},
	{"10 the store is slow, or is not heard", syncNotHeard, inboxNotHeard},
	{"11 the store dies between handler and confirm", syncConfirmFails, inboxConfirmFails},
	{"12 the store is wiped", syncWiped, nil},
	{"13 clocks differ", syncSkew, nil},
	{"14 out of order", outOfOrder, nil},
	{"15 huge and odd bodies", syncBodies, inboxBodies},
	{"16 forged requests never reach the store", syncForged, inboxForged},
	{"17 rotation", syncRotation, nil},
	{"18 spoofed ids", syncSpoofed, inboxSpoofed},
	{"19 redelivery around the horizon", syncHorizon, inboxHorizon},
	{"20 other bodies and batches", syncBatch, inboxBatch},
}

// Times of the scenarios: a lease of 150 s, of which no slow machine uses up what it must not.
const (
	stageDeadline = 110 * time.Second
	stageGrace    = 10 * time.Second
	stageBudget   = 30 * time.Second
	stageLease    = stageDeadline + stageGrace + stageBudget
	stagePatience = time.Minute // for what must happen
)

// stage is one scenario being played.
type stage struct {
	testing.TB
	Bench
	*faults
	seen     *observed
	effects  *effects
	patience time.Duration
}

func newStage(t testing.TB, b Bench) *stage {
	return &stage{TB: t, Bench: b, faults: newFaults(), seen: &observed{}, effects: &effects{}, patience: stagePatience}
}

// patient is Svix, with patience for a crowded machine. The waits between its attempts are its own.
func patient() receive.Provider {
	p := providers.Svix()
	p.Timeout = 5 * time.Minute
	return p
}

// sync makes a Sync on the store in bad hands.
func (s *stage) sync(p receive.Provider, h receive.Handler, change ...func(*receive.SyncConfig)) (*receive.Sync, receive.Source) {
	s.Helper()
	cfg := receive.SyncConfig{
		Source: NewSource(s, "mail", p), Store: faultyClaims{s.faults, s.Claims}, Handler: h, Observe: s.seen.observe,
		Deadline: stageDeadline, Grace: stageGrace, StoreBudget: stageBudget, Wait: -1,
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := receive.NewSync(s.Context(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	return r, cfg.Source
}

// inbox makes an Inbox on the store in bad hands. Its lease is 20 s of the deadline, grace and budget.
func (s *stage) inbox(p receive.Provider, h receive.Handler, change ...func(*receive.InboxConfig)) (*receive.Inbox, receive.Source) {
	s.Helper()
	cfg := receive.InboxConfig{
		Source: NewSource(s, "billing", p), Store: faultyInbox{s.faults, s.Inbox}, Handler: h, Observe: s.seen.observe, RunElsewhere: true,
		Deadline: stageDeadline, Grace: stageGrace, StoreBudget: stageBudget, Retry: receive.Retry{First: time.Minute},
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := receive.NewInbox(s.Context(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	return r, cfg.Source
}

// want posts body and compares the answer's status.
func (s *stage) want(h http.Handler, src receive.Source, body string, status int) *http.Response {
	s.Helper()
	res := Post(s, h, src, body)
	if res.StatusCode != status {
		s.Errorf("at this point %s is answered %d, want %d", body, res.StatusCode, status)
	}
	return res
}

func (s *stage) count(what string, got, want int) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %d, want %d", what, got, want)
	}
}

// settled waits until nothing runs beside the requests any more.
func (s *stage) settled(r *receive.Sync) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), s.patience)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		s.Fatalf("something still runs: %v", err)
	}
}

// await waits for a channel.
func await[T any](s *stage, what string, ch <-chan T) (v T) {
	s.Helper()
	select {
	case v = <-ch:
	case <-time.After(s.patience):
		s.Fatalf("%s does not happen", what)
	}
	return v
}

// until waits for a condition.
func (s *stage) until(what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(s.patience); !holds(); {
		if time.Now().After(deadline) {
			s.Fatalf("%s does not happen", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// effects counts what handlers did, and remembers by which runs.
type effects struct {
	mu   sync.Mutex
	runs []int
	ids  []string
	body []string
}

func (e *effects) handle(_ context.Context, d *receive.Delivery) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs, e.ids, e.body = append(e.runs, d.Run), append(e.ids, d.ID), append(e.body, string(d.Body))
	return nil
}

func (e *effects) n() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// observed are a receiver's observations.
type observed struct {
	mu  sync.Mutex
	all []receive.Observation
}

func (o *observed) observe(_ context.Context, one receive.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, one)
}

// of is how many single events or runs came to the outcome.
func (o *observed) of(outcome string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		if one.Outcome == outcome && one.Key != (receive.Key{}) {
			n++
		}
	}
	return n
}

// lastEvent is the last observation of a single event with the outcome.
func (o *observed) lastEvent(outcome string) (last receive.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		if one.Outcome == outcome && one.Key != (receive.Key{}) {
			last = one
		}
	}
	return last
}

// last is the last observation with the outcome.
func (o *observed) last(outcome string) (last receive.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		if one.Outcome == outcome {
			last = one
		}
	}
	return last
}
