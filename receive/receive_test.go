package receive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/memstore"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/signature"
)

func TestInbox_answersFailureUntilSomebodyRunsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		in, src, _ := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) { cfg.RunElsewhere = false })
		wantStatus(t, in, src, event, http.StatusServiceUnavailable)
		wantCount(t, "stored", store.Len(), 0)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- in.Run(ctx) }()
		synctest.Wait()
		wantStatus(t, in, src, event, http.StatusOK)
		synctest.Wait() // no time passes: the worker is woken
		wantCount(t, "effects", c.effects(), 1)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantStatus(t, in, src, `{"id":"evt_2"}`, http.StatusOK) // the next process runs it
	})
}

func TestInbox_triesAgainAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		c := counter{err: errors.New("the plan service is down")}
		var at []time.Duration
		start := time.Now()
		in, src, obs := stripeInbox(t, store, func(ctx context.Context, d *receive.Delivery) error {
			at = append(at, time.Since(start))
			return c.handle(ctx, d)
		}, func(cfg *receive.InboxConfig) {
			cfg.Retry = receive.Retry{First: time.Minute, Max: 10 * time.Minute, Window: time.Hour}
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = in.Run(ctx) }()
		synctest.Wait()
		wantStatus(t, in, src, event, http.StatusOK)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for i := 1; i < len(at); i++ {
			most := min(time.Minute<<(i-1), 10*time.Minute)
			if gap := at[i] - at[i-1]; gap < most/2 || gap > most+2*time.Second {
				t.Errorf("run %d came %v after the one before, want %v to %v", i+1, gap, most/2, most)
			}
		}
		if end := at[len(at)-1]; end < time.Hour || end > time.Hour+11*time.Minute {
			t.Errorf("the last run was after %v", end)
		}
		wantCount(t, "dead letters observed", obs.count(receive.DeadLettered), 1)
		letters := 0
		for l, err := range in.Dead(t.Context()) {
			letters++
			if err != nil || string(l.Record.Body) != event || !strings.Contains(l.Reason, "the plan service is down") || l.Runs != len(at) {
				t.Errorf("%+v, %v", l, err)
			}
			c.err = nil
			if err := in.Replay(t.Context(), l.Record.Key); err != nil {
				t.Error(err)
			}
		}
		wantCount(t, "dead letters", letters, 1)
		time.Sleep(time.Minute)
		wantCount(t, "effects after the replay", c.effects(), 1)
	})
}

func TestInbox_honoursPermanentAndRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var mu sync.Mutex
		runs := map[string][]time.Duration{}
		start := time.Now()
		in, src, _ := stripeInbox(t, store, func(_ context.Context, d *receive.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			runs[d.ID] = append(runs[d.ID], time.Since(start))
			switch {
			case d.ID == "evt_never":
				return fmt.Errorf("wrapped: %w", receive.Permanent(errors.New("no such plan")))
			case d.Run == 1:
				return fmt.Errorf("wrapped: %w", receive.RetryAfter(time.Hour, errors.New("busy")))
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = in.Run(ctx) }()
		synctest.Wait()
		wantStatus(t, in, src, `{"id":"evt_never"}`, 200)
		wantStatus(t, in, src, `{"id":"evt_later"}`, 200)
		time.Sleep(24 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		wantCount(t, "runs of what will never work", len(runs["evt_never"]), 1)
		if later := runs["evt_later"]; len(later) != 2 || later[1]-later[0] < time.Hour {
			t.Errorf("runs of what asked for an hour: %v", later)
		}
	})
}

// An event that kills the process must end.
func TestInbox_poisonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		runs := 0
		in, src, _ := stripeInbox(t, store, func(context.Context, *receive.Delivery) error {
			runs++
			store.Crash()
			return nil
		})
		wantStatus(t, in, src, event, 200)
		for range 10 {
			receivetest.Drain(t, in)
			store.Advance(time.Hour)
		}
		wantCount(t, "runs", runs, 3)
		letters := 0
		for l, err := range in.Dead(t.Context()) {
			letters++
			if err != nil || !strings.Contains(l.Reason, "poison") {
				t.Errorf("%+v, %v", l, err)
			}
		}
		wantCount(t, "letters", letters, 1)
	})
}

func TestInbox_answerIsTooLate(t *testing.T) {
	store := receivetest.NewStore()
	in, src, _ := stripeInbox(t, store, func(_ context.Context, d *receive.Delivery) error {
		return d.Answer(receive.Reply{Body: []byte("<Response/>")})
	})
	wantStatus(t, in, src, event, 200)
	receivetest.Drain(t, in)
	n := 0
	for l := range in.Dead(t.Context()) {
		n++
		if l.Reason != receive.ErrAnswered.Error() {
			t.Errorf("reason %q", l.Reason)
		}
	}
	wantCount(t, "dead letters", n, 1)
}

// A handler longer than its lease keeps it, and one that lost it is told.
func TestInbox_renewsALeaseOnlyForItsOwnRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		ended := make(chan error, 1)
		var starts atomic.Int64
		in, src, obs := stripeInbox(t, store, func(ctx context.Context, _ *receive.Delivery) error {
			if starts.Add(1) > 1 {
				return nil
			}
			select {
			case <-time.After(8 * time.Minute):
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return ctx.Err()
			}
			return nil
		}, func(cfg *receive.InboxConfig) { cfg.Deadline = 10 * time.Minute })
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = in.Run(ctx) }()
		synctest.Wait()
		wantStatus(t, in, src, event, 200)
		time.Sleep(9 * time.Minute)
		wantCount(t, "starts, with a lease of half a minute", int(starts.Load()), 1)
		wantCount(t, "processed", obs.count(receive.Processed), 1)

		starts.Store(0)
		wantStatus(t, in, src, `{"id":"evt_2"}`, 200)
		time.Sleep(time.Second)
		store.Fail("extend", 1000, errDown, false)
		time.Sleep(time.Minute)
		if cause := <-ended; !errors.Is(cause, receive.ErrLeaseLost) {
			t.Errorf("the handler's context ended with %v", cause)
		}
		store.Mend()
		time.Sleep(5 * time.Minute)
		wantCount(t, "starts after the lease was lost", int(starts.Load()), 2)
		stop()
	})
}

func TestSync_panicIsAFailure(t *testing.T) {
	var log bytes.Buffer
	first := true
	s, src, _ := svixSync(t, receivetest.NewStore(), func(context.Context, *receive.Delivery) error {
		if first {
			first = false
			panic("a bug")
		}
		return nil
	}, func(cfg *receive.SyncConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	wantStatus(t, s, src, event, http.StatusServiceUnavailable)
	wantStatus(t, s, src, event, http.StatusOK)
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "receive_test.go") {
		t.Errorf("the log says %q", log.String())
	}
	if strings.Contains(log.String(), src.Secrets[0].Value) || strings.Contains(log.String(), "invoice.paid") {
		t.Error("the log has a secret, or the body")
	}
}

func TestSync_shutdownWaitsAndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		s, src, _ := svixSync(t, store, func(ctx context.Context, d *receive.Delivery) error {
			time.Sleep(5 * time.Second)
			return c.handle(ctx, d)
		})
		go receivetest.Post(t, s, src, event)
		time.Sleep(time.Second)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		wantCount(t, "effects", c.effects(), 1)
		wantStatus(t, s, src, event, http.StatusOK)

		var cause error
		s, src, _ = svixSync(t, store, func(ctx context.Context, _ *receive.Delivery) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		go receivetest.Post(t, s, src, `{"id":"evt_2"}`)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if !errors.Is(cause, receive.ErrShutdown) {
			t.Errorf("the handler's context ended with %v", cause)
		}
	})
}

func TestSync_repeatsAreToldTheReply(t *testing.T) {
	src := receivetest.NewSource(t, "voice", providers.Twilio())
	s, err := receive.NewSync(t.Context(), receive.SyncConfig{
		Source: src, Store: receivetest.NewStore(), Deadline: 3 * time.Second,
		Handler: func(_ context.Context, d *receive.Delivery) error {
			return d.Answer(receive.Reply{Status: 202, ContentType: "text/xml", Body: []byte("<Response/>")})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res := wantStatus(t, s, src, "CallSid=CA1", 202)
		body, err := io.ReadAll(res.Body)
		if string(body) != "<Response/>" || res.Header.Get("Content-Type") != "text/xml" || err != nil {
			t.Errorf("%q %v %v", body, res.Header, err)
		}
	}
}

func TestSync_permanentErrors(t *testing.T) {
	never := func(context.Context, *receive.Delivery) error { return receive.Permanent(errors.New("no such plan")) }
	t.Run("its letter is written with its state", func(t *testing.T) {
		store := receivetest.NewStore()
		s, src, obs := svixSync(t, store, never)
		wantStatus(t, s, src, event, 200)
		wantStatus(t, s, src, event, 200)
		wantCount(t, "dead", obs.events(receive.DeadLettered), 1)
		n := 0
		for l, err := range store.Letters(t.Context(), "mail") {
			n++
			if err != nil || string(l.Record.Body) != event || l.Reason != "no such plan" {
				t.Errorf("%+v, %v", l, err)
			}
		}
		wantCount(t, "letters", n, 1)
	})
	t.Run("a letter that is not answered is no success", func(t *testing.T) {
		store := receivetest.NewStore()
		s, src, _ := svixSync(t, store, never)
		store.Fail("settle", 1, errDown, true)
		wantStatus(t, s, src, event, 503)
		wantStatus(t, s, src, event, 200)
	})
	t.Run("with nowhere to put it, it is a failure", func(t *testing.T) {
		s, src, _ := svixSync(t, memstore.New(100), never)
		wantStatus(t, s, src, event, 503)
		wantStatus(t, s, src, event, 503)
	})
	t.Run("a letter elsewhere", func(t *testing.T) {
		letters := receivetest.NewStore()
		s, src, _ := svixSync(t, memstore.New(100), never, func(cfg *receive.SyncConfig) { cfg.DeadLetters = letters })
		letters.Fail("bury", 1, errDown, false)
		wantStatus(t, s, src, event, 503)
		wantStatus(t, s, src, event, 200)
		wantStatus(t, s, src, event, 200)
		wantCount(t, "letters", letters.Len(), 1)
	})
}

func TestHandshakes(t *testing.T) {
	var c counter
	open := func(p receive.Provider, token string) (*receive.Inbox, receive.Source, *receivetest.Store) {
		src := receivetest.NewSource(t, p.Name, p)
		src.ChallengeToken = token
		store := receivetest.NewStore()
		in, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: src, Store: store, Handler: c.handle, Waive: []receive.Rule{receive.NoID}})
		if err != nil {
			t.Fatal(err)
		}
		return in, src, store
	}
	body := func(res *http.Response) string {
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Nobody runs the inboxes: a handshake is answered all the same.
	in, src, store := open(providers.Slack(), "")
	if got := body(wantStatus(t, in, src, `{"type":"url_verification","challenge":"3eZbrw1a"}`, 200)); got != "3eZbrw1a" {
		t.Errorf("Slack's challenge is answered %q", got)
	}
	forged := receivetest.Request(t, src, `{"type":"url_verification","challenge":"3eZbrw1a"}`)
	forged.Header.Set("X-Slack-Signature", "v0="+strings.Repeat("0", 64))
	wantCount(t, "Slack's challenge, forged", receivetest.Do(in, forged).StatusCode, 401)
	wantCount(t, "stored", store.Len(), 0)

	in, src, _ = open(providers.Discord(), "")
	wantStatus(t, in, src, `{"version":1,"type":0}`, 204)
	probe := receivetest.Request(t, src, `{"version":1,"type":0}`)
	probe.Header.Set("X-Signature-Ed25519", strings.Repeat("0", 128))
	wantCount(t, "Discord's probe", receivetest.Do(in, probe).StatusCode, 401)

	in, _, _ = open(providers.Meta(), "a token of ours")
	get := func(in http.Handler, token string) *http.Response {
		return receivetest.Do(in, httptest.NewRequest(http.MethodGet, "/?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="+token, nil))
	}
	if res := get(in, "a+token+of+ours"); res.StatusCode != 200 || body(res) != "1158201444" {
		t.Errorf("Meta's challenge: %d", res.StatusCode)
	}
	wantCount(t, "Meta's challenge with another token", get(in, "x").StatusCode, 401)
	in, _, _ = open(providers.Meta(), "")
	wantCount(t, "Meta's challenge without one set", get(in, "").StatusCode, 401)
	in, _, _ = open(providers.Stripe(), "")
	wantCount(t, "a GET where there is no handshake", get(in, "").StatusCode, 405)
}

func TestIntake_keys(t *testing.T) {
	read := func(src receive.Source, r *http.Request) receive.Key {
		t.Helper()
		in, err := receive.NewIntake(src)
		if err != nil {
			t.Fatal(err)
		}
		a := in.Read(httptest.NewRecorder(), r, time.Now())
		if len(a.Records) != 1 {
			t.Fatalf("%+v", a)
		}
		return a.Records[0].Key
	}
	key := func(src receive.Source, body string) receive.Key {
		t.Helper()
		return read(src, receivetest.Request(t, src, body))
	}
	stripe := receivetest.NewSource(t, "billing", providers.Stripe())
	connect := stripe
	connect.Account = receive.Lookup{Pointer: "/account"}
	other := stripe
	other.Name = "reporting"

	same := func(says string, a, b receive.Key, want bool) {
		t.Helper()
		if (a.Hash() == b.Hash()) != want {
			t.Errorf("%s: the same event %v, want %v", says, !want, want)
		}
	}
	same("one event twice", key(stripe, event), key(stripe, event), true)
	same("one id, and something else in the body", key(stripe, event), key(stripe, `{"id":"evt_1"}`), true)
	same("two sources", key(stripe, event), key(other, event), false)
	same("two accounts", key(connect, `{"id":"evt_1","account":"acct_1"}`), key(connect, `{"id":"evt_1","account":"acct_2"}`), false)
	same("ids that differ in case", key(stripe, `{"id":"evt_a"}`), key(stripe, `{"id":"evt_A"}`), false)
	same("no id, equal bytes", key(stripe, `{}`), key(stripe, `{}`), false)
	byBody := stripe
	byBody.BodyIsID = time.Hour
	same("no id, equal bytes, meant to be one", key(byBody, `{}`), key(byBody, `{}`), true)
	same("an id that no log can show", key(stripe, `{"id":"a\u0000b"}`), key(stripe, `{"id":"a\u0000c"}`), false)
	same("a number as the id", key(stripe, `{"id":12}`), key(stripe, `{"id":12}`), true)

	shop := receivetest.NewSource(t, "shop", providers.Shopify())
	topic := func(topic string) *http.Request {
		r := receivetest.Request(t, shop, `{"id":1}`)
		r.Header.Set("X-Shopify-Topic", topic)
		return r
	}
	same("one id under two topics", read(shop, topic("orders/create")), read(shop, topic("orders/updated")), false)
	same("one id under one topic", read(shop, topic("orders/create")), read(shop, topic("orders/create")), true)
}

func TestIntake_keepsSecretsOutOfWhatIsStored(t *testing.T) {
	for p := range providers.All() {
		if _, ok := p.Scheme.(signature.SigningScheme); !ok {
			continue
		}
		src := receivetest.NewSource(t, "x", p)
		d := receivetest.Delivery(t, src, map[bool]string{true: `[{"a":1}]`, false: `{"a":1}`}[p.Split != nil])
		for _, h := range append(p.Scheme.Headers(), "Authorization", "Cookie") {
			if d.Header.Get(h) != "" {
				t.Errorf("%s: %s is kept", p.Name, h)
			}
		}
	}
}

func TestInbox_topicsThatAreNotWantedAreDeclined(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	in, src, obs := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) { cfg.Source.Topics = []string{"invoice.paid"} })
	wantStatus(t, in, src, `{"id":"evt_2","type":"charge.updated"}`, http.StatusOK) // a 4xx would disable the endpoint
	wantCount(t, "declined", obs.count(receive.Declined), 1)
	wantCount(t, "stored", store.Len(), 0)
	wantStatus(t, in, src, event, http.StatusOK)
	wantCount(t, "stored", store.Len(), 1)
}

// A store that is down for a while: nothing is told stored that is not.
func TestInbox_storeDownForAWhile(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	in, src, _ := stripeInbox(t, store, c.handle)
	store.Fail("put", 20, errDown, false)
	post := func(want int) {
		for i := range 20 {
			wantStatus(t, in, src, fmt.Sprintf(`{"id":"evt_%d"}`, i), want)
		}
	}
	post(http.StatusServiceUnavailable)
	wantCount(t, "stored while it was down", store.Len(), 0)
	post(http.StatusOK)
	wantCount(t, "stored after", store.Len(), 20)
}

// The answer was lost, not the commit: the retry is a repeat, and there is one run.
func TestInbox_putAppliedAndUnanswered(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	in, src, obs := stripeInbox(t, store, c.handle)
	store.Fail("put", 1, context.DeadlineExceeded, true)
	wantStatus(t, in, src, event, http.StatusServiceUnavailable)
	wantStatus(t, in, src, event, http.StatusOK)
	wantCount(t, "duplicates", obs.events(receive.Duplicate), 1)
	wantCount(t, "runs", receivetest.Drain(t, in), 1)
}

func TestCodes_areTheProviders(t *testing.T) {
	src := receivetest.NewSource(t, "mail", providers.Brevo())
	store := receivetest.NewStore()
	in, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: src, Store: store, Handler: (&counter{}).handle, RunElsewhere: true})
	if err != nil {
		t.Fatal(err)
	}
	store.Fail("put", 1, errDown, false)
	wantStatus(t, in, src, event, 429)
	wantStatus(t, in, src, strings.Repeat("x", 2<<20), 429)
	r := receivetest.Request(t, src, event)
	r.Header.Set("Authorization", "another token of 16 bytes")
	wantCount(t, "rejected", receivetest.Do(in, r).StatusCode, 429)
}
