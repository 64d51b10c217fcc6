package receivetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// lease is long enough that no slow machine ends one by itself.
const lease = 10 * time.Minute

// NewRecord is an event of a source, for tests of stores.
func NewRecord(source, id, body string) receive.Record {
	return receive.Record{
		Key:   receive.Key{Source: source, ID: id},
		Topic: "invoice.paid", Body: []byte(body), Digest: sha256.Sum256([]byte(body)), Of: 1, IDSigned: true,
	}
}

// TestClaimStore is the contract of receive.ClaimStore as a test. open returns an empty store, and
// advance, which lets its clock run by that much (a store on a database may move its rows' times
// back instead).
func TestClaimStore(t *testing.T, open func(t *testing.T) (s receive.ClaimStore, advance func(time.Duration))) {
	for _, p := range claimPromises {
		t.Run(p.says, func(t *testing.T) {
			s, advance := open(t)
			p.test(&claims{t, s, advance})
		})
	}
}

// claims is one promise being put to the test.
type claims struct {
	testing.TB
	receive.ClaimStore
	advance func(time.Duration)
}

var claimPromises = []struct {
	says string
	test func(*claims)
}{
	{"a new event is granted, as run 1", func(c *claims) {
		f := c.claim("evt_1")
		if f.Claim.Run != 1 || f.Claim.Fence < 1 || f.Claim.Crashes != 0 || f.State != receive.Held {
			c.Errorf("run %d, fence %d, crashes %d, state %v", f.Claim.Run, f.Claim.Fence, f.Claim.Crashes, f.State)
		}
		if !f.Claim.Granted || f.OtherBody {
			c.Errorf("granted %v, other body %v", f.Claim.Granted, f.OtherBody)
		}
	}},
	{"a held event is not granted, and its lease is told", func(c *claims) {
		c.claim("evt_1")
		f := c.try("evt_1", receive.NewToken())
		if f.Claim != nil || f.State != receive.Held || f.Left <= 0 || f.Left > lease {
			c.Errorf("claim %v, state %v, left %v", f.Claim, f.State, f.Left)
		}
	}},
	{"the same token is granted again, unchanged", func(c *claims) {
		token := receive.NewToken()
		first, second := c.try("evt_1", token), c.try("evt_1", token)
		if second.Claim == nil || second.Claim.Run != first.Claim.Run || second.Claim.Fence != first.Claim.Fence {
			c.Errorf("first %+v, second %+v", first.Claim, second.Claim)
		}
	}},
	{"an event whose lease is over is granted to another, as the next run", func(c *claims) {
		a := c.claim("evt_1").Claim
		c.advance(lease - time.Minute)
		if f := c.try("evt_1", receive.NewToken()); f.Claim != nil {
			c.Fatal("granted before the lease was over")
		}
		c.advance(time.Minute + time.Second)
		b := c.claim("evt_1").Claim
		if b.Run != a.Run+1 || b.Fence <= a.Fence || b.Crashes != 1 {
			c.Errorf("after %+v: %+v", a, b)
		}
	}},
	{"a done event is told with its reply", func(c *claims) {
		reply := receive.Reply{Status: 202, ContentType: "text/xml", Body: []byte("<a>\x00\xff</a>")}
		c.settle(c.claim("evt_1").Claim, receive.Outcome{State: receive.Done, Reply: reply, Retain: time.Hour}, nil)
		c.advance(time.Minute)
		f := c.try("evt_1", receive.NewToken())
		if f.Claim != nil || f.State != receive.Done || f.Reply.Status != 202 || f.Reply.ContentType != "text/xml" || !bytes.Equal(f.Reply.Body, reply.Body) {
			c.Errorf("claim %v, state %v, reply %+v", f.Claim, f.State, f.Reply)
		}
		if f.Since < time.Minute || f.Since > time.Hour {
			c.Errorf("arrived %v ago", f.Since)
		}
	}},
	{"a done event is forgotten when its time is over, and its fence is not", func(c *claims) {
		a := c.claim("evt_1").Claim
		c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		c.advance(59 * time.Minute)
		if f := c.try("evt_1", receive.NewToken()); f.State != receive.Done {
			c.Fatalf("state %v before its time", f.State)
		}
		c.advance(2 * time.Minute)
		c.claim("evt_1")
	}},
	{"a claim that no run settles is forgotten at last, and not before", func(c *claims) {
		p, ok := c.ClaimStore.(receive.Pruner)
		if !ok {
			return // it forgets by itself, or keeps few
		}
		prune := func(want int) {
			c.Helper()
			if n, err := p.Prune(c.Context()); n != want || err != nil {
				c.Errorf("pruned %d, %v, want %d", n, err, want)
			}
		}
		c.settle(c.claim("freed").Claim, receive.Outcome{State: receive.Free}, nil)
		c.claim("crashed")
		if l, ok := c.ClaimStore.(receive.DeadLetterStore); ok {
			r := NewRecord("billing", "dead", "{}")
			if err := l.Bury(c.Context(), &r, "no"); err != nil {
				c.Fatal(err)
			}
		}
		c.advance(receive.ClaimMemory - time.Hour)
		prune(0)
		for id, run := range map[string]int{"freed": 2, "crashed": 2} {
			if f := c.claim(id); f.Claim.Run != run {
				c.Errorf("%s: run %d before its time", id, f.Claim.Run)
			}
		}
		c.advance(receive.ClaimMemory + lease + time.Hour)
		prune(2)
		for _, id := range []string{"freed", "crashed"} {
			if f := c.claim(id); f.Claim.Run != 1 {
				c.Errorf("%s: run %d after it", id, f.Claim.Run)
			}
		}
	}},
	{"an overtaken run changes nothing", func(c *claims) {
		for _, o := range []receive.Outcome{{State: receive.Free}, {State: receive.Done, Retain: time.Hour}, {State: receive.Done, Look: true}} {
			id := "evt_" + o.State.String()
			a := c.claim(id).Claim
			c.advance(lease + time.Second)
			b := c.claim(id).Claim
			c.settle(a, o, receive.ErrLeaseLost)
			if f := c.try(id, b.Token); f.Claim == nil || f.Claim.Fence != b.Fence {
				c.Errorf("%v by the overtaken run: the other lost its claim", o.State)
			}
			c.settle(b, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
			c.settle(a, o, receive.ErrLeaseLost)
			if f := c.try(id, receive.NewToken()); f.State != receive.Done {
				c.Errorf("%v by the overtaken run: state %v", o.State, f.State)
			}
			c.advance(2 * time.Hour)
		}
	}},
	{"a run whose lease is over, but was not overtaken, may still settle", func(c *claims) {
		a := c.claim("evt_1").Claim
		c.advance(lease + time.Second)
		c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		if f := c.try("evt_1", receive.NewToken()); f.State != receive.Done {
			c.Errorf("state %v", f.State)
		}
	}},
	{"settling twice to the same state is fine", func(c *claims) {
		a := c.claim("evt_1").Claim
		for range 2 {
			c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		}
		b := c.claim("evt_2").Claim
		for range 2 {
			c.settle(b, receive.Outcome{State: receive.Free}, nil)
		}
	}},
	{"a run cannot undo its own done", func(c *claims) {
		a := c.claim("evt_1").Claim
		c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		c.settle(a, receive.Outcome{State: receive.Free}, receive.ErrLeaseLost)
		if f := c.try("evt_1", receive.NewToken()); f.State != receive.Done {
			c.Errorf("state %v", f.State)
		}
	}},
	{"a freed event is granted at once, and counts as no crash", func(c *claims) {
		a := c.claim("evt_1").Claim
		c.settle(a, receive.Outcome{State: receive.Free, After: time.Hour}, nil)
		b := c.claim("evt_1").Claim
		if b.Run != 2 || b.Fence <= a.Fence || b.Crashes != 0 {
			c.Errorf("after %+v: %+v", a, b)
		}
		c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, receive.ErrLeaseLost)
	}},
	{"an unknown event cannot be settled", func(c *claims) {
		stranger := &receive.Claim{Key: NewRecord("billing", "evt_9", "{}").Key, Token: receive.NewToken(), Granted: true}
		for _, o := range []receive.Outcome{{State: receive.Done, Retain: time.Hour}, {State: receive.Free}, {State: receive.Done, Look: true}} {
			c.settle(stranger, o, receive.ErrLeaseLost)
		}
		if f := c.claim("evt_9"); f.Claim.Run != 1 {
			c.Errorf("run %d", f.Claim.Run)
		}
	}},
	{"looking changes nothing", func(c *claims) {
		a := c.claim("evt_1").Claim
		look := receive.Outcome{State: receive.Done, Look: true}
		c.settle(a, look, receive.ErrNotCommitted)
		if f := c.try("evt_1", receive.NewToken()); f.State != receive.Held || f.Claim != nil {
			c.Errorf("state %v", f.State)
		}
		c.settle(a, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		c.settle(a, look, nil)
		b := c.claim("evt_2").Claim
		c.settle(b, receive.Outcome{State: receive.Free}, nil)
		c.settle(b, look, receive.ErrLeaseLost)
	}},
	{"every part of the key counts, and their borders do", func(c *claims) {
		keys := []receive.Key{
			{Source: "a", Account: "b", ID: "c"},
			{Source: "ab", Account: "", ID: "c"},
			{Source: "a", Account: "bc", ID: ""},
			{Source: "a", Account: "b", ID: "C"},
			{Source: "a", Account: "b", ID: "c", Index: 1},
			{Source: "a", Account: "b", ID: "c", Digest: [32]byte{1}},
		}
		for _, key := range keys {
			if f := c.tryRecord(receive.Record{Key: key}, receive.NewToken()); f.Claim == nil || f.Claim.Run != 1 {
				c.Errorf("%+v is taken for another", key)
			}
		}
	}},
	{"the same event with another body is told", func(c *claims) {
		c.settle(c.claim("evt_1").Claim, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		if f := c.try("evt_1", receive.NewToken()); f.OtherBody {
			c.Error("the same body is another")
		}
		if f := c.tryRecord(NewRecord("billing", "evt_1", "other"), receive.NewToken()); !f.OtherBody || f.State != receive.Done {
			c.Errorf("other body %v, state %v", f.OtherBody, f.State)
		}
	}},
	{"of 100 at once, one is granted", func(c *claims) {
		c.race(1)
		c.advance(lease + time.Second)
		c.race(2)
	}},
	{"a context that is over is an error", func(c *claims) {
		ctx, cancel := context.WithCancel(c.Context())
		cancel()
		r := NewRecord("billing", "evt_1", "{}")
		if f, err := c.Claim(ctx, &r, receive.NewToken(), lease); err == nil || f.Claim != nil {
			c.Errorf("%+v, %v", f, err)
		}
	}},
	{"a dead letter is kept whole, told, and can be revived", func(c *claims) {
		letters, ok := c.ClaimStore.(receive.DeadLetterStore)
		if !ok {
			return
		}
		r := NewRecord("billing", "evt_1", "{ \"a\": 1.0 }")
		a := c.tryRecord(r, receive.NewToken()).Claim
		for range 2 {
			c.settle(a, receive.Outcome{State: receive.Dead, Reason: "no such plan", Record: &r}, nil)
		}
		c.settle(a, receive.Outcome{State: receive.Free}, receive.ErrLeaseLost)
		c.advance(1000 * time.Hour)
		if f := c.tryRecord(r, receive.NewToken()); f.State != receive.Dead || f.Claim != nil {
			c.Errorf("state %v", f.State)
		}
		checkLetter(c, letters, "billing", r, "no such plan", 1)
		if err := letters.Revive(c.Context(), r.Key); err != nil {
			c.Fatal(err)
		}
		checkNoLetter(c, letters, "billing")
		if b := c.tryRecord(r, receive.NewToken()).Claim; b == nil || b.Run != 2 || b.Fence <= a.Fence {
			c.Errorf("after the revival: %+v", b)
		}
	}},
	{"a letter of an event that another store claims is kept once", func(c *claims) {
		letters, ok := c.ClaimStore.(receive.DeadLetterStore)
		if !ok {
			return
		}
		r := NewRecord("billing", "evt_1", "{}")
		for range 2 {
			if err := letters.Bury(c.Context(), &r, "no such plan"); err != nil {
				c.Fatal(err)
			}
		}
		checkLetter(c, letters, "billing", r, "no such plan", 0)
		checkNoLetter(c, letters, "mail")
	}},
}

func (c *claims) try(id string, token receive.Token) receive.Found {
	c.Helper()
	return c.tryRecord(NewRecord("billing", id, "{}"), token)
}

func (c *claims) tryRecord(r receive.Record, token receive.Token) receive.Found {
	c.Helper()
	f, err := c.Claim(c.Context(), &r, token, lease)
	if err != nil {
		c.Fatal(err)
	}
	if f.Claim != nil && (f.Claim.Token != token || f.Claim.Key != r.Key) {
		c.Fatalf("asked for %+v by %v, got %+v", r.Key, token, f.Claim)
	}
	return f
}

// claim is try by a fresh token that must be granted.
func (c *claims) claim(id string) receive.Found {
	c.Helper()
	f := c.try(id, receive.NewToken())
	if f.Claim == nil {
		c.Fatalf("%s not granted: %v", id, f.State)
	}
	return f
}

func (c *claims) settle(claim *receive.Claim, o receive.Outcome, want error) {
	c.Helper()
	if err := c.Settle(c.Context(), claim, o); !errors.Is(err, want) || (want == nil) != (err == nil) {
		c.Errorf("settle %v (look %v): %v, want %v", o.State, o.Look, err, want)
	}
}

// race claims one event a hundred times at once.
func (c *claims) race(run int) {
	c.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var granted []*receive.Claim
	start := make(chan struct{})
	for range 100 {
		wg.Go(func() {
			<-start
			r := NewRecord("billing", "evt_race", "{}")
			f, err := c.Claim(c.Context(), &r, receive.NewToken(), lease)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				c.Errorf("one of 100: %v", err)
			} else if f.Claim != nil {
				granted = append(granted, f.Claim)
			}
		})
	}
	close(start)
	wg.Wait()
	if len(granted) != 1 || granted[0].Run != run {
		c.Errorf("%d of 100 were granted: %+v", len(granted), granted)
	}
}

func checkLetter(t testing.TB, s receive.DeadLetterStore, source string, r receive.Record, reason string, runs int) {
	t.Helper()
	n := 0
	for l, err := range s.Letters(t.Context(), source) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if l.Record.Key != r.Key || !bytes.Equal(l.Record.Body, r.Body) || l.Reason != reason || l.Runs != runs || l.At.IsZero() || l.Record.ReceivedAt.IsZero() {
			t.Errorf("letter %+v", l)
		}
	}
	if n != 1 {
		t.Errorf("%d letters, want 1", n)
	}
}

func checkNoLetter(t testing.TB, s receive.DeadLetterStore, source string) {
	t.Helper()
	for l, err := range s.Letters(t.Context(), source) {
		t.Errorf("letter %+v, %v", l, err)
	}
}
