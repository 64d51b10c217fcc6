package receivetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// TestInboxStore is the contract of receive.InboxStore as a test. open returns an empty store, and
// advance, which lets its clock run by that much.
func TestInboxStore(t *testing.T, open func(t *testing.T) (s receive.InboxStore, advance func(time.Duration))) {
	for _, p := range inboxPromises {
		t.Run(p.says, func(t *testing.T) {
			s, advance := open(t)
			p.test(&inbox{t, s, advance})
		})
	}
}

// inbox is one promise being put to the test.
type inbox struct {
	testing.TB
	receive.InboxStore
	advance func(time.Duration)
}

var inboxPromises = []struct {
	says string
	test func(*inbox)
}{
	{"what is put is taken, whole, as run 1", func(in *inbox) {
		want := receive.Record{
			Key:   receive.Key{Source: "billing", Account: "acct_1", ID: "evt_1", Index: 2, Digest: [32]byte{7}},
			Topic: "invoice.paid", Header: http.Header{"Content-Type": {"application/json"}, "X-Two": {"a", "b"}},
			Body: []byte("{ \"score\": 0.0, \"s\": \"\u2028\\u0000\" }"), Digest: [32]byte{1, 2}, Of: 3, IDSigned: true,
			SentAt: time.Unix(1_700_000_000, 0).UTC(),
		}
		if f := in.put(want); !f.New || f.State != receive.Free || f.OtherBody {
			in.Errorf("put: %+v", f)
		}
		taken := in.take(10)
		if len(taken) != 1 {
			in.Fatalf("took %d", len(taken))
		}
		got, c := taken[0].Record, taken[0].Claim
		if got.ReceivedAt.IsZero() {
			in.Error("no time of arrival")
		}
		got.ReceivedAt, got.SentAt = time.Time{}, got.SentAt.UTC()
		if !reflect.DeepEqual(want, got) {
			in.Errorf("put\n%+v\ntook\n%+v", want, got)
		}
		if !c.Granted || c.Run != 1 || c.Fence < 1 || c.Crashes != 0 || c.Key != want.Key {
			in.Errorf("claim %+v", c)
		}
	}},
	{"any bytes are a body", func(in *inbox) {
		for i, body := range [][]byte{{}, []byte("\xff\x00\r\n"), bytes.Repeat([]byte("x"), 1<<20)} {
			r := NewRecord("billing", fmt.Sprint("evt_", i), "")
			r.Body, r.Digest = body, sha256.Sum256(body)
			in.put(r)
			taken := in.take(1)
			if len(taken) != 1 || !bytes.Equal(taken[0].Record.Body, body) {
				in.Fatalf("%d bytes: took %d records", len(body), len(taken))
			}
		}
	}},
	{"a repeat is told as what it is", func(in *inbox) {
		r := NewRecord("billing", "evt_1", "{}")
		in.put(r)
		in.advance(time.Minute)
		wantState := func(state receive.State) {
			in.Helper()
			if f := in.put(r); f.New || f.State != state || f.Since < time.Minute {
				in.Errorf("want %v: %+v", state, f)
			}
		}
		wantState(receive.Free)
		c := in.takeOne()
		wantState(receive.Held)
		in.settle(c, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		wantState(receive.Done)
		in.advance(59 * time.Minute)
		wantState(receive.Done)
		r = NewRecord("billing", "evt_2", "{}")
		in.put(r)
		in.advance(time.Minute)
		in.settle(in.takeOne(), receive.Outcome{State: receive.Dead, Reason: "no"}, nil)
		wantState(receive.Dead)
	}},
	{"a done event is forgotten only when its time is over", func(in *inbox) {
		r := NewRecord("billing", "evt_1", "{}")
		in.put(r)
		in.settle(in.takeOne(), receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		in.advance(59 * time.Minute)
		in.prune()
		if f := in.put(r); f.State != receive.Done {
			in.Fatalf("%+v before its time", f)
		}
		in.advance(2 * time.Minute)
		in.prune()
		if f := in.put(r); !f.New {
			in.Errorf("%+v after its time", f)
		}
	}},
	{"a batch is put in one step, and twins in it are one", func(in *inbox) {
		a, b := NewRecord("billing", "evt_1", "{}"), NewRecord("billing", "evt_2", "{}")
		found, err := in.Put(in.Context(), []receive.Record{a, b, a})
		if err != nil || len(found) != 3 {
			in.Fatalf("%+v, %v", found, err)
		}
		if !found[0].New || !found[1].New || found[2].New {
			in.Errorf("%+v", found)
		}
		if n := len(in.take(10)); n != 2 {
			in.Errorf("took %d", n)
		}
	}},
	{"another body under one key is told, and the first stays", func(in *inbox) {
		in.put(NewRecord("billing", "evt_1", "first"))
		if f := in.put(NewRecord("billing", "evt_1", "second")); !f.OtherBody || f.New {
			in.Errorf("%+v", f)
		}
		taken := in.take(10)
		if len(taken) != 1 || string(taken[0].Record.Body) != "first" {
			in.Errorf("took %+v", taken)
		}
	}},
	{"of two puts of one key at once, one is new", func(in *inbox) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		news := 0
		for range 20 {
			wg.Go(func() {
				found, err := in.Put(in.Context(), []receive.Record{NewRecord("billing", "evt_1", "{}")})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					in.Error(err)
				} else if found[0].New {
					news++
				}
			})
		}
		wg.Wait()
		if news != 1 {
			in.Errorf("%d were new", news)
		}
	}},
	{"only the source's events are taken, so many as asked, oldest first", func(in *inbox) {
		for i := range 5 {
			in.put(NewRecord("billing", fmt.Sprint("evt_", i), "{}"))
			in.put(NewRecord("mail", fmt.Sprint("evt_", i), "{}"))
			in.advance(time.Second)
		}
		var ids []string
		for _, n := range []int{2, 1, 10} {
			taken := in.take(n)
			if len(taken) > n {
				in.Errorf("asked for %d, took %d", n, len(taken))
			}
			for _, t := range taken {
				ids = append(ids, t.Record.Key.Source+" "+t.Record.Key.ID)
			}
		}
		want := []string{"billing evt_0", "billing evt_1", "billing evt_2", "billing evt_3", "billing evt_4"}
		if !slices.Equal(want, ids) {
			in.Errorf("want %v, took %v", want, ids)
		}
	}},
	{"of many takers, each event has one", func(in *inbox) {
		const events = 60
		for i := range events {
			in.put(NewRecord("billing", fmt.Sprint("evt_", i), "{}"))
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		seen := map[string]int{}
		for range 8 {
			wg.Go(func() {
				for empty := 0; empty < 2; {
					taken, err := in.Take(in.Context(), "billing", 7, lease)
					if err != nil {
						in.Error(err)
						return
					}
					if len(taken) == 0 {
						empty++
					}
					mu.Lock()
					twice := false
					for _, t := range taken {
						seen[t.Record.Key.ID]++
						twice = twice || seen[t.Record.Key.ID] > 1
					}
					mu.Unlock()
					if twice {
						return // and it would be so for ever
					}
				}
			})
		}
		wg.Wait()
		for _, t := range in.take(events) { // what two takers were shy of
			seen[t.Record.Key.ID]++
		}
		for id, n := range seen {
			if n != 1 {
				in.Errorf("%s was given %d times", id, n)
			}
		}
		if len(seen) != events {
			in.Errorf("%d of %d events were given", len(seen), events)
		}
	}},
	{"a freed event waits as long as was asked", func(in *inbox) {
		in.put(NewRecord("billing", "evt_1", "{}"))
		a := in.takeOne()
		in.settle(a, receive.Outcome{State: receive.Free, After: time.Hour, Reason: "busy"}, nil)
		in.advance(59 * time.Minute)
		if n := len(in.take(1)); n != 0 {
			in.Fatal("taken before")
		}
		in.advance(2 * time.Minute)
		if b := in.takeOne(); b.Run != 2 || b.Fence <= a.Fence || b.Crashes != 0 {
			in.Errorf("after %+v: %+v", a, b)
		}
	}},
	{"an event whose lease is over is taken again, and its crashes are counted", func(in *inbox) {
		in.put(NewRecord("billing", "evt_1", "{}"))
		fence := int64(0)
		for crashes := range 3 {
			c := in.takeOne()
			if c.Run != crashes+1 || c.Crashes != crashes || c.Fence <= fence {
				in.Errorf("after %d crashes: %+v", crashes, c)
			}
			fence = c.Fence
			in.advance(lease - time.Minute)
			if n := len(in.take(1)); n != 0 {
				in.Fatal("taken before the lease was over")
			}
			in.advance(time.Minute + time.Second)
		}
	}},
	{"a lease is renewed by its run alone, and never shortened", func(in *inbox) {
		in.put(NewRecord("billing", "evt_1", "{}"))
		a := in.takeOne()
		in.extend(a, time.Minute, nil)
		in.advance(2 * time.Minute)
		if n := len(in.take(1)); n != 0 {
			in.Fatal("the lease was shortened")
		}
		in.advance(lease - 3*time.Minute)
		in.extend(a, lease, nil)
		in.advance(lease - time.Minute)
		if n := len(in.take(1)); n != 0 {
			in.Fatal("the lease was not renewed")
		}
		in.advance(2 * time.Minute)
		b := in.takeOne()
		in.extend(a, lease, receive.ErrLeaseLost)
		in.settle(b, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		in.extend(b, lease, receive.ErrLeaseLost)
	}},
	{"an overtaken run changes nothing", func(in *inbox) {
		for _, o := range []receive.Outcome{{State: receive.Free}, {State: receive.Done, Retain: time.Hour}, {State: receive.Dead, Reason: "late"}} {
			r := NewRecord("billing", "evt_"+o.State.String(), "{}")
			in.put(r)
			a := in.takeOne()
			in.advance(lease + time.Second)
			b := in.takeOne()
			in.settle(a, o, receive.ErrLeaseLost)
			in.extend(b, lease, nil)
			in.settle(b, receive.Outcome{State: receive.Done, Retain: 24 * time.Hour}, nil)
			in.settle(a, o, receive.ErrLeaseLost)
			in.settle(b, receive.Outcome{State: receive.Free}, receive.ErrLeaseLost)
			in.settle(b, receive.Outcome{State: receive.Done, Retain: 24 * time.Hour}, nil)
			if f := in.put(r); f.State != receive.Done {
				in.Errorf("%v by the overtaken run: %v", o.State, f.State)
			}
		}
		checkNoLetter(in, in, "billing")
	}},
	{"no unfinished event and no letter is ever forgotten", func(in *inbox) {
		in.put(NewRecord("billing", "evt_dead", "{}"))
		in.settle(in.takeOne(), receive.Outcome{State: receive.Dead, Reason: "no"}, nil)
		in.put(NewRecord("billing", "evt_freed", "{}"))
		in.settle(in.takeOne(), receive.Outcome{State: receive.Free}, nil)
		in.put(NewRecord("billing", "evt_held", "{}"))
		for _, t := range in.take(2) {
			if t.Record.Key.ID == "evt_freed" {
				in.settle(t.Claim, receive.Outcome{State: receive.Free}, nil)
			}
		}
		in.put(NewRecord("billing", "evt_new", "{}"))
		in.advance(10 * 365 * 24 * time.Hour)
		in.prune()
		if n := len(in.take(10)); n != 3 {
			in.Errorf("%d of 3 unfinished events are left", n)
		}
		n := 0
		for range in.Letters(in.Context(), "billing") {
			n++
		}
		if n != 1 {
			in.Errorf("%d letters are left", n)
		}
	}},
	{"a dead letter is kept whole, is not taken, and can be revived", func(in *inbox) {
		r := NewRecord("billing", "evt_1", "{ \"a\": 1.0 }")
		in.put(r)
		a := in.takeOne()
		for range 2 {
			in.settle(a, receive.Outcome{State: receive.Dead, Reason: "no such plan"}, nil)
		}
		in.advance(lease + time.Second)
		if n := len(in.take(1)); n != 0 {
			in.Error("a dead letter was taken")
		}
		checkLetter(in, in, "billing", r, "no such plan", 1)
		checkNoLetter(in, in, "mail")
		if err := in.Revive(in.Context(), r.Key); err != nil {
			in.Fatal(err)
		}
		checkNoLetter(in, in, "billing")
		if b := in.takeOne(); b.Run != 2 || b.Fence <= a.Fence {
			in.Errorf("after the revival: %+v", b)
		}
	}},
	{"a done event can be revived, an unfinished or unknown one cannot", func(in *inbox) {
		r := NewRecord("billing", "evt_1", "{}")
		revive := func(want error) {
			in.Helper()
			if err := in.Revive(in.Context(), r.Key); !errors.Is(err, want) || (want == nil) != (err == nil) {
				in.Errorf("%v, want %v", err, want)
			}
		}
		revive(receive.ErrNotFound)
		in.put(r)
		revive(receive.ErrNotFound)
		c := in.takeOne()
		revive(receive.ErrNotFound)
		in.settle(c, receive.Outcome{State: receive.Done, Retain: time.Hour}, nil)
		revive(nil)
		if b := in.takeOne(); b.Run != 2 || b.Fence <= c.Fence {
			in.Errorf("after the revival: %+v", b)
		}
	}},
	{"a letter is kept once", func(in *inbox) {
		r := NewRecord("billing", "evt_1", "{}")
		for range 2 {
			if err := in.Bury(in.Context(), &r, "no"); err != nil {
				in.Fatal(err)
			}
		}
		checkLetter(in, in, "billing", r, "no", 0)
	}},
}

func (in *inbox) put(r receive.Record) receive.Found {
	in.Helper()
	found, err := in.Put(in.Context(), []receive.Record{r})
	if err != nil || len(found) != 1 {
		in.Fatalf("put: %+v, %v", found, err)
	}
	return found[0]
}

func (in *inbox) take(n int) []receive.Taken {
	in.Helper()
	taken, err := in.Take(in.Context(), "billing", n, lease)
	if err != nil {
		in.Fatal(err)
	}
	return taken
}

func (in *inbox) takeOne() *receive.Claim {
	in.Helper()
	taken := in.take(1)
	if len(taken) != 1 {
		in.Fatalf("took %d, want 1", len(taken))
	}
	return taken[0].Claim
}

func (in *inbox) settle(c *receive.Claim, o receive.Outcome, want error) {
	in.Helper()
	if err := in.Settle(in.Context(), c, o); !errors.Is(err, want) || (want == nil) != (err == nil) {
		in.Errorf("settle %v: %v, want %v", o.State, err, want)
	}
}

func (in *inbox) extend(c *receive.Claim, d time.Duration, want error) {
	in.Helper()
	if err := in.Extend(in.Context(), c, d); !errors.Is(err, want) || (want == nil) != (err == nil) {
		in.Errorf("extend: %v, want %v", err, want)
	}
}

func (in *inbox) prune() {
	in.Helper()
	if p, ok := in.InboxStore.(receive.Pruner); ok {
		if _, err := p.Prune(in.Context()); err != nil {
			in.Error(err)
		}
	}
}
