package receive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/signature"
)

func TestScenario13_clockSkew(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	for _, v := range []struct {
		off    time.Duration
		reason signature.Reason
	}{{-300 * time.Second, ""}, {-302 * time.Second, signature.TooOld}, {299 * time.Second, ""}, {302 * time.Second, signature.TooNew}} {
		res := receivetest.Do(s, receivetest.RequestAt(t, src, fmt.Sprintf(`{"off":%d}`, v.off), time.Now().Add(v.off)))
		if (res.StatusCode == 200) != (v.reason == "") {
			t.Errorf("%v off: %d", v.off, res.StatusCode)
		}
		if v.reason != "" && obs.last(receive.Rejected).Reason != string(v.reason) {
			t.Errorf("%v off: reason %q", v.off, obs.last(receive.Rejected).Reason)
		}
	}
	skew := obs.last(receive.Processed).Skew
	if skew < 290*time.Second || skew > 300*time.Second {
		t.Errorf("skew %v, of a request 299 s ahead", skew)
	}
}

// The order guard itself is the stores'; here is what it is asked with.
func TestScenario14_outOfOrderVersions(t *testing.T) {
	updated, deleted := receive.Version{At: 100, Tie: "evt_b"}, receive.Version{At: 101, Tie: "evt_a"}
	if updated.After(deleted) || !deleted.After(updated) {
		t.Error("the later one is not after the earlier one")
	}
	a, b := receive.Version{At: 100, Tie: "evt_a"}, receive.Version{At: 100, Tie: "evt_b"}
	if !b.After(a) || a.After(b) || a.After(a) {
		t.Error("the tie does not decide, or not the same way for any order of arrival")
	}
}

func TestScenario15_hugeAndOddBodies(t *testing.T) {
	store := receivetest.NewStore()
	var bodies [][]byte
	in, src, obs := stripeInbox(t, store, func(_ context.Context, d *receive.Delivery) error {
		bodies = append(bodies, d.Body)
		return nil
	}, func(cfg *receive.InboxConfig) { cfg.Source.MaxBody = 1000 })
	signed := func(body string) *http.Request { return receivetest.Request(t, src, body) }

	wantCount(t, "a body at the limit", receivetest.Do(in, signed(strings.Repeat("x", 1000))).StatusCode, 200)
	wantCount(t, "one byte more", receivetest.Do(in, signed(strings.Repeat("x", 1001))).StatusCode, 413)
	chunked := signed(strings.Repeat("x", 1001))
	chunked.ContentLength = -1
	wantCount(t, "one byte more, in chunks", receivetest.Do(in, chunked).StatusCode, 413)
	endless := signed("{}")
	endless.ContentLength, endless.Body = -1, io.NopCloser(endlessly{})
	wantCount(t, "without an end", receivetest.Do(in, endless).StatusCode, 413)
	huge := signed("{}")
	huge.ContentLength = 1 << 60
	wantCount(t, "said to be huge", receivetest.Do(in, huge).StatusCode, 413)
	short := signed("{}")
	short.ContentLength = 500
	wantCount(t, "shorter than it says", receivetest.Do(in, short).StatusCode, 503)
	gzipped := signed("{}")
	gzipped.Header.Set("Content-Encoding", "gzip")
	wantCount(t, "encoded", receivetest.Do(in, gzipped).StatusCode, 401)
	wantCount(t, "stored of all those", store.Len(), 1)
	wantCount(t, "observed as too large", obs.count(receive.TooLarge), 4)

	odd := []string{"", "null", "{}", "\xff\xfe", "{\"a\":1}\r\n", `{ "score": 0.0, "n": 1E2, "m": 1.10 }`}
	for _, body := range odd {
		wantStatus(t, in, src, body, http.StatusOK)
	}
	receivetest.Drain(t, in)
	for i, body := range odd {
		if got := string(bodies[i+1]); got != body {
			t.Errorf("sent %q, handled %q", body, got)
		}
	}
}

type endlessly struct{}

func (endlessly) Read(p []byte) (int, error) { return len(p), nil }

func TestScenario16_invalidSignature(t *testing.T) {
	store := receivetest.NewStore()
	store.Fail("claim", 1000, errors.New("the store was asked"), true)
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	for says, change := range map[string]func(r *http.Request){
		"missing":   func(r *http.Request) { r.Header.Del("webhook-signature") },
		"malformed": func(r *http.Request) { r.Header.Set("webhook-signature", "v1,%%%") },
		"mismatch": func(r *http.Request) {
			r.Header.Set("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		},
	} {
		r := receivetest.Request(t, src, event)
		change(r)
		res := receivetest.Do(s, r)
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusUnauthorized || len(body) != 0 || err != nil {
			t.Errorf("%s: %d %q %v", says, res.StatusCode, body, err)
		}
		o := obs.last(receive.Rejected)
		if o.Reason != says || o.Err == nil {
			t.Errorf("%s: reason %q, %v", says, o.Reason, o.Err)
		}
	}
	r := receivetest.Request(t, src, event)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Replace(event, "1", "2", 1))), int64(len(event))
	wantCount(t, "a flipped byte", receivetest.Do(s, r).StatusCode, 401)
	wantCount(t, "events in the store", store.Len(), 0)
	_, err := receive.NewSync(t.Context(), receive.SyncConfig{
		Source: receive.Source{Name: "mail", Provider: providers.Svix(), Secrets: receive.Secrets("")}, Store: store, Handler: c.handle,
		Waive: []receive.Rule{receive.Secretless},
	})
	wantRule(t, err, receive.Secretless)
}

func TestScenario17_rotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		old, next := signature.GenerateSecret(), signature.GenerateSecret()
		var src receive.Source
		s, src, _ := svixSync(t, store, c.handle, func(cfg *receive.SyncConfig) {
			cfg.Source.Secrets = []receive.Secret{{Value: next}, {Value: old, Until: time.Now().Add(time.Hour)}}
		})
		by := func(secret string) receive.Source {
			src := src
			src.Secrets = receive.Secrets(secret)
			return src
		}
		wantStatus(t, s, by(old), `{"n":1}`, 200)
		wantStatus(t, s, by(next), `{"n":2}`, 200)
		two := receivetest.Request(t, by(signature.GenerateSecret()), `{"n":3}`)
		good := receivetest.Request(t, by(next), `{"n":3}`)
		two.Header["Webhook-Signature"] = append(two.Header["Webhook-Signature"], good.Header["Webhook-Signature"]...)
		wantCount(t, "two lines", receivetest.Do(s, two).StatusCode, 200)
		time.Sleep(time.Hour)
		wantStatus(t, s, by(old), `{"n":4}`, 401)
		wantStatus(t, s, by(next), `{"n":4}`, 200)
	})
}

func TestScenario17_secretsThatAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current, asked, broken := signature.GenerateSecret(), 0, false
		var c counter
		s, src, _ := svixSync(t, receivetest.NewStore(), c.handle, func(cfg *receive.SyncConfig) {
			cfg.Source.Secrets = nil
			cfg.Source.SecretsFunc = func(context.Context) ([]receive.Secret, error) {
				asked++
				if broken {
					return nil, errDown
				}
				return receive.Secrets(current), nil
			}
		})
		by := func() receive.Source {
			src := src
			src.Secrets = receive.Secrets(current)
			return src
		}
		wantStatus(t, s, by(), `{"n":1}`, 200)
		wantStatus(t, s, by(), `{"n":2}`, 200)
		wantCount(t, "asked for two requests", asked, 1)
		time.Sleep(10 * time.Second)
		current = signature.GenerateSecret()
		wantStatus(t, s, by(), `{"n":3}`, 200) // nothing fitted, so it was asked again
		wantCount(t, "asked after the rotation", asked, 2)
		broken = true
		time.Sleep(time.Hour)
		for i := range 3 {
			wantStatus(t, s, by(), fmt.Sprintf(`{"m":%d}`, i), 200) // the last known are better than none
		}
		wantCount(t, "asked while it is down", asked, 3)
	})
}

func TestScenario18_identitySpoofing(t *testing.T) {
	store := receivetest.NewStore()
	var ids []string
	s, src, _ := svixSync(t, store, func(_ context.Context, d *receive.Delivery) error {
		ids = append(ids, d.ID)
		return nil
	})
	r := receivetest.Request(t, src, event)
	r.Header.Set("svix-id", "msg_of_another")
	receivetest.Do(s, r)
	if len(ids) != 1 || ids[0] != r.Header.Get("webhook-id") {
		t.Errorf("ids %v, signed %q", ids, r.Header.Get("webhook-id"))
	}

	// GitHub's id is not signed: an old body under an id that somebody guesses must not make the
	// real event a repeat.
	var bodies []string
	hub := receivetest.NewSource(t, "ci", providers.GitHub())
	in, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: hub, Store: receivetest.NewStore(), RunElsewhere: true, Handler: func(_ context.Context, d *receive.Delivery) error {
		bodies = append(bodies, string(d.Body))
		if d.IDSigned {
			t.Error("the id is said to be signed")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"old":1}`, `{"real":1}`, `{"real":1}`} {
		r := receivetest.Request(t, hub, body)
		r.Header.Set("X-GitHub-Delivery", "guessed")
		receivetest.Do(in, r)
	}
	receivetest.Drain(t, in)
	if len(bodies) != 2 || bodies[1] != `{"real":1}` {
		t.Errorf("handled %v", bodies)
	}
}

func TestScenario20_fingerprintMismatch(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	in, src, obs := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) {
		cfg.Source.Provider.Fingerprint = func(body []byte) []byte {
			before, _, _ := strings.Cut(string(body), `,"attempt"`)
			return []byte(before)
		}
	})
	wantStatus(t, in, src, `{"id":"evt_1","amount":1,"attempt":1}`, 200)
	wantStatus(t, in, src, `{"id":"evt_1","amount":1,"attempt":2}`, 200)
	wantCount(t, "other bodies after what may differ", obs.count(receive.OtherBody), 0)
	wantStatus(t, in, src, `{"id":"evt_1","amount":9,"attempt":3}`, 200)
	wantCount(t, "other bodies", obs.count(receive.OtherBody), 1)
	receivetest.Drain(t, in)
	wantCount(t, "effects", c.effects(), 1)
}

func TestScenario20_batches(t *testing.T) {
	store := receivetest.NewStore()
	src := receivetest.NewSource(t, "mailevents", providers.SendGrid())
	ran := map[string]int{}
	fail := "b"
	handler := func(_ context.Context, d *receive.Delivery) error {
		ran[d.ID]++
		if d.Of != 3 || d.Topic != "open" {
			t.Errorf("%s: %d of %d, topic %q", d.ID, d.Index, d.Of, d.Topic)
		}
		if d.ID == fail {
			return errors.New("not now")
		}
		return nil
	}
	s, err := receive.NewSync(t.Context(), receive.SyncConfig{Source: src, Store: store, Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	batch := `[{"sg_event_id":"a","event":"open"}, {"sg_event_id":"b","event":"open"} ,{"sg_event_id":"c","event":"open"}]` + "\r\n"
	wantStatus(t, s, src, batch, http.StatusServiceUnavailable)
	fail = ""
	wantStatus(t, s, src, batch, http.StatusOK)
	wantStatus(t, s, src, batch, http.StatusOK)
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; !maps.Equal(ran, want) {
		t.Errorf("runs %v, want %v", ran, want)
	}
}
