package strangers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
	"github.com/waybill-dev/waybill/tests/program"
)

// receiver keeps what arrives, by path.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	arrived map[string][]delivery
}

type delivery struct {
	header http.Header
	body   string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{arrived: map[string][]delivery{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.arrived[req.URL.Path] = append(r.arrived[req.URL.Path], delivery{req.Header.Clone(), string(body)})
	}))
	t.Cleanup(r.Close)
	return r
}

// await returns what arrived at a path once it is so many.
func (r *receiver) await(t *testing.T, path string, n int) []delivery {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		r.mu.Lock()
		got := r.arrived[path]
		r.mu.Unlock()
		if len(got) >= n {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d deliveries arrived at %s", len(got), n, path)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func endpoint(server *program.Server, fields map[string]any) (id, secret string) {
	var made struct{ ID, Secret string }
	server.Call(http.MethodPost, "/v1/tenants/acme/endpoints", fields, http.StatusCreated, &made)
	return made.ID, made.Secret
}

func publish(server *program.Server, eventType, payload string) string {
	var made struct{ ID string }
	server.Call(http.MethodPost, "/v1/tenants/acme/events", fmt.Appendf(nil, `{"type":%q,"payload":%s}`, eventType, payload), http.StatusAccepted, &made)
	return made.ID
}

// get fetches an address without a key.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestServe_receiversGetWhatTheyWant(t *testing.T) {
	server := program.Serve(t, program.Build(t), "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	server.Call(http.MethodPut, "/v1/tenants/acme", []byte(`{}`), http.StatusCreated, nil)
	r := newReceiver(t)

	t.Run("only what passes the filter", func(t *testing.T) {
		endpoint(server, map[string]any{"url": r.URL + "/large", "event_types": []string{"order"}, "filter": json.RawMessage(`{"data":{"amount":{"$gt":9007199254740992}}}`)})
		endpoint(server, map[string]any{"url": r.URL + "/all", "event_types": []string{"order"}})
		for _, payload := range []string{`{"data":{"amount":9007199254740992}}`, `{"data":{"amount":9007199254740993}}`, `{"data":{}}`, `{"data":{"amount": 1e20}}`} {
			publish(server, "order", payload)
		}
		r.await(t, "/all", 4)
		got := map[string]bool{}
		for _, d := range r.await(t, "/large", 2) {
			got[d.body] = true
		}
		if len(got) != 2 || !got[`{"data":{"amount":9007199254740993}}`] || !got[`{"data":{"amount": 1e20}}`] {
			t.Errorf("passed the filter: %v", got)
		}
	})

	t.Run("an address instead of the payload, for as long as the bytes are kept", func(t *testing.T) {
		_, secret := endpoint(server, map[string]any{"url": r.URL + "/thin", "event_types": []string{"thin"}, "payload_mode": "thin", "thin_ttl_seconds": 60})
		const payload = `{ "b": 1.0, "a": "<&>" }`
		id := publish(server, "thin", payload)
		d := r.await(t, "/thin", 1)[0]
		key, err := signature.ParseSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&signature.Verifier{Secrets: []signature.Secret{key}}).Verify(d.header, []byte(d.body)); err != nil {
			t.Errorf("the thin body does not verify: %v", err)
		}
		var thin map[string]string
		if err := json.Unmarshal([]byte(d.body), &thin); err != nil || thin["id"] != id || thin["type"] != "thin" || strings.Contains(d.body, "<&>") {
			t.Fatalf("thin body %s: %v", d.body, err)
		}
		if status, body := get(t, thin["url"]); status != http.StatusOK || body != payload {
			t.Errorf("fetched %d %s", status, body)
		}
		if status, _ := get(t, thin["url"]+"x"); status != http.StatusForbidden {
			t.Errorf("a changed address answers %d", status)
		}
		server.Call(http.MethodDelete, "/v1/tenants/acme/events/"+id+"/payload", nil, http.StatusNoContent, nil)
		if status, _ := get(t, thin["url"]); status != http.StatusGone {
			t.Errorf("after the bytes were erased it answers %d", status)
		}
	})

	t.Run("nothing of what was erased while it waited", func(t *testing.T) {
		id, _ := endpoint(server, map[string]any{"url": r.URL + "/late", "event_types": []string{"late"}, "state": "paused"})
		event := publish(server, "late", `{"secret":1}`)
		kept := publish(server, "late", `{"secret":2}`)
		server.Call(http.MethodDelete, "/v1/tenants/acme/events/"+event+"/payload", nil, http.StatusNoContent, nil)
		server.Call(http.MethodPatch, "/v1/tenants/acme/endpoints/"+id, []byte(`{"state":"active"}`), http.StatusOK, nil)
		if d := r.await(t, "/late", 1); d[0].header.Get("Webhook-Id") != kept {
			t.Errorf("got %s", d[0].body)
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			var list struct {
				Data []struct {
					ID, State string
					Dead      *struct{ Kind string }
				}
			}
			server.Call(http.MethodGet, "/v1/tenants/acme/events/"+event+"/deliveries", nil, http.StatusOK, &list)
			if len(list.Data) == 1 && list.Data[0].State == "dead" {
				if list.Data[0].Dead.Kind != "payload_gone" {
					t.Errorf("it is dead of %s", list.Data[0].Dead.Kind)
				}
				server.Call(http.MethodPost, "/v1/tenants/acme/deliveries/"+list.Data[0].ID+"/replay", []byte(`{}`), http.StatusConflict, nil)
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v", list)
			}
			<-time.After(10 * time.Millisecond)
		}
	})

	t.Run("credentials and an older signature, and a scheme that changes for all", func(t *testing.T) {
		scheme := func(header string) {
			server.Call(http.MethodPut, "/v1/signature-schemes/old", fmt.Appendf(nil,
				`{"algorithm":"hmac-sha256","secret_encoding":"utf8","signed_content":"{body}","encoding":"hex","headers":{%q:"{signature}"}}`, header), map[bool]int{true: 201, false: 200}[header == "X-Old"], nil)
		}
		scheme("X-Old")
		endpoint(server, map[string]any{"url": r.URL + "/old", "event_types": []string{"old"}, "secret_headers": map[string]string{"Authorization": "Bearer t"},
			"signing": map[string]any{"schemes": []string{"old"}}, "secrets": []map[string]string{{"scheme": "old", "value": "key"}}})
		publish(server, "old", `1`)
		d := r.await(t, "/old", 1)[0]
		// printf 1 | openssl dgst -sha256 -hmac key
		const sum = "6da91fb91517be1f5cdcf3af91d7d40c717dd638a306157606fb2e584f7ae926"
		if d.header.Get("X-Old") != sum || d.header.Get("Authorization") != "Bearer t" || d.header.Get("Webhook-Signature") != "" {
			t.Errorf("%v", d.header)
		}
		scheme("X-Newer")
		for n := 2; ; n++ { // the nodes hear of it within a second
			publish(server, "old", `1`)
			got := r.await(t, "/old", n)
			if last := got[n-1].header; last.Get("X-Newer") == d.header.Get("X-Old") {
				return
			}
			if n > 200 {
				t.Fatal("the scheme's change is never heard of")
			}
		}
	})
}
