package contract

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/app"
	"github.com/waybill-dev/waybill/internal/config"
)

func apiDocument() ([]byte, error) { return api.Document("v1") }

const operatorKey = "the-operator-of-the-contract"

// world is a server in this process with something of everything in it, for two tenants.
type world struct {
	t        *testing.T
	base     string
	log      *logged
	client   *http.Client
	receiver string

	ids     map[string][]string // by the name of a field or parameter
	keys    []string            // API keys of several powers; the operator's first
	cursors []string            // of any list seen so far
	main    map[string]string   // of each tenant the endpoint that gets its events
	spares  int
}

// logged is what the server wrote.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newWorld starts the server and fills it.
func newWorld(t *testing.T, database string, customer *receiver) *world {
	t.Helper()
	cfg, err := config.Load(config.Sources{Environ: []string{
		"WAYBILL_DATABASE_URL=" + database,
		"WAYBILL_LISTEN=127.0.0.1:0",
		"WAYBILL_API_KEY=" + operatorKey,
		"WAYBILL_ENCRYPTION_KEY=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"WAYBILL_EGRESS_ALLOW=127.0.0.0/8",
		"WAYBILL_RATE_LIMIT=100000",
	}})
	must(t, err)
	w := &world{t: t, log: &logged{}, receiver: customer.URL, ids: map[string][]string{}, main: map[string]string{}, keys: []string{operatorKey}}
	server, err := app.New(t.Context(), cfg, slog.New(slog.NewTextHandler(w.log, nil)))
	must(t, err)
	w.base = "http://" + server.Addr()
	// No redirect is followed: what the document does not know is an answer to be judged.
	w.client = &http.Client{Timeout: 2 * time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	w.fill(customer)
	return w
}

// want sends a request that must succeed, and notes the ids in the answer.
func (w *world) want(method, path, body string) map[string]any {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	must(w.t, err)
	req.Header.Set("Authorization", "Bearer "+operatorKey)
	answer, err := w.client.Do(req)
	must(w.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(w.t, err)
	if answer.StatusCode >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	var object map[string]any
	if len(text) > 0 {
		must(w.t, json.Unmarshal(text, &object))
	}
	return object
}

func (w *world) note(name string, id any) string {
	text, _ := id.(string)
	if text == "" {
		w.t.Fatalf("no id for %s", name)
	}
	w.ids[name] = append(w.ids[name], text)
	return text
}

func (w *world) fill(customer *receiver) {
	w.want("PUT", "/v1/event-types/payment.succeeded", `{"description":"Paid","schema":{"type":"object"},"example":{"id":1}}`)
	w.note("type", "payment.succeeded")
	w.want("PUT", "/v1/signature-schemes/house", `{"preset":"github"}`)
	w.note("name", "house")
	for _, tenant := range []string{"acme", "rival"} {
		w.want("PUT", "/v1/tenants/"+tenant, `{"metadata":{"plan":"pro"}}`)
		w.note("tenant", tenant)
		under := "/v1/tenants/" + tenant
		w.main[tenant] = w.note("ep", w.want("POST", under+"/endpoints", fmt.Sprintf(`{"url":%q,"uid":"main-%s","secret_headers":{"X-Key":"k"},"retry":{"max_attempts":1}}`, customer.URL, tenant))["id"])
		w.note("ep", "main-"+tenant)
		w.note("ep", w.want("POST", under+"/endpoints", fmt.Sprintf(`{"url":%q,"ordering":"strict","state":"paused","rate_limit":{"count":5,"per_seconds":1}}`, customer.URL))["id"])
		for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
			customer.answer(status)
			event := w.note("evt", w.want("POST", under+"/events", `{"type":"payment.succeeded","payload":{"id":"pay_1"},"metadata":{"order":"7"},"ordering_key":"o","idempotency_key":"`+fmt.Sprint(status)+`"}`)["id"])
			var last map[string]any
			eventually(w.t, "ended", func() bool {
				list := w.want("GET", under+"/events/"+event+"/deliveries?state=delivered&state=dead", "")["data"].([]any)
				if len(list) == 0 {
					return false
				}
				last = at(list[0])
				return true
			})
			w.note("dlv", last["id"])
			w.note("att", at(last, "last_attempt")["id"])
		}
		customer.answer(http.StatusOK)
		w.note("dlv", at(w.want("GET", under+"/deliveries?state=pending", "")["data"].([]any)[0])["id"])
		w.note("rpl", w.want("POST", under+"/replays", `{"from":"2026-01-01T00:00:00Z","to":"2100-01-01T00:00:00Z","state":"delivered"}`)["id"])
		w.note("can", w.want("POST", under+"/cancellations", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","reason":"a test"}`)["id"])
		w.note("era", w.want("POST", under+"/erasures", `{"metadata":{"order":"of nobody"}}`)["id"])
		w.note("ps", w.want("POST", under+"/portal-sessions", `{"user":{"id":"u"}}`)["id"])
		w.want("PUT", "/v1/sources/"+tenant+"-in", fmt.Sprintf(`{"provider":"github","tenant":%q,"secrets":["a-secret-of-some-length"]}`, tenant))
		w.note("source", tenant+"-in")
		made := w.want("POST", "/v1/sources/"+tenant+"-in/secrets", `{"secret":"another-secret-of-some-length"}`)
		for _, secret := range made["secrets"].([]any) {
			w.note("secret", at(secret)["id"])
		}
	}
	// Nobody signed it, so it is refused, and kept for people to see.
	refused, err := w.client.Post(w.base+"/in/acme-in", "application/json", strings.NewReader(`{}`))
	must(w.t, err)
	must(w.t, refused.Body.Close())
	eventually(w.t, "noted", func() bool {
		list := w.want("GET", "/v1/sources/acme-in/requests", "")["data"].([]any)
		if len(list) > 0 {
			w.note("in", at(list[0])["id"])
		}
		return len(list) > 0
	})
	w.note("ps", w.want("POST", "/v1/operator-sessions", `{}`)["id"])
	for _, body := range []string{`{"name":"reader","scopes":["read"]}`, `{"name":"acme","scopes":["read","write","publish","listen"],"tenant":"acme"}`, `{"name":"spent","scopes":["publish"],"tenant":"rival"}`} {
		made := w.want("POST", "/v1/keys", body)
		w.note("key", made["id"])
		w.keys = append(w.keys, made["key"].(string))
	}
	w.ids["key"] = nil // those who ask must not lose their keys; spare ones are made to be deleted
	w.keys = append(w.keys, "no-such-key", "")
}

const gatewaySecret = "a-secret-of-some-length"

// gatewaySource is a source that GitHub's webhooks come to.
const gatewaySource = `{"provider":"github","tenant":"acme","secrets":["` + gatewaySecret + `"]}`

// signAsGitHub signs a body as GitHub does
// (https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries).
func signAsGitHub(header http.Header, body []byte, id string) {
	mac := hmac.New(sha256.New, []byte(gatewaySecret))
	mac.Write(body)
	header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	header.Set("X-GitHub-Delivery", id)
	header.Set("X-GitHub-Event", "push")
	header.Set("Content-Type", "application/json")
}

// resume undoes what would keep all that follows from succeeding.
func (w *world) resume() {
	w.want("PUT", "/v1/dispatch", `{"state":"running"}`)
	for tenant, endpoint := range w.main {
		w.want("PUT", "/v1/tenants/"+tenant, `{"state":"active","max_endpoints":null}`)
		w.want("PATCH", "/v1/tenants/"+tenant+"/endpoints/"+endpoint, `{"state":"active"}`)
	}
}

// spare makes what an operation is about to use up, and returns what to put into its path.
func (w *world) spare(o *operation) map[string]string {
	w.spares++
	name := fmt.Sprintf("spare-%d", w.spares)
	switch o.id {
	case "deleteTenant":
		w.want("PUT", "/v1/tenants/"+name, `{}`)
		return map[string]string{"tenant": name}
	case "deleteEndpoint":
		return map[string]string{"tenant": "acme", "ep": w.want("POST", "/v1/tenants/acme/endpoints", fmt.Sprintf(`{"url":%q,"state":"draft"}`, w.receiver))["id"].(string)}
	case "deleteKey":
		return map[string]string{"key": w.want("POST", "/v1/keys", `{"name":"spare","scopes":["read"]}`)["id"].(string)}
	case "deleteEventType":
		w.want("PUT", "/v1/event-types/"+name, `{"description":"spare"}`)
		return map[string]string{"type": name}
	case "deleteSignatureScheme":
		w.want("PUT", "/v1/signature-schemes/"+name, `{"preset":"github"}`)
		return map[string]string{"name": name}
	case "deleteSource", "deleteSourceSecrets", "deleteSourceSecret", "addSourceSecret":
		made := w.want("PUT", "/v1/sources/"+name, `{"provider":"github","tenant":"acme","secrets":["a-secret-of-some-length"]}`)
		return map[string]string{"source": name, "secret": at(made["secrets"].([]any)[0])["id"].(string)}
	case "erasePayload":
		return map[string]string{"tenant": "acme", "evt": w.want("POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":1}`)["id"].(string)}
	case "receiveWebhook":
		w.want("PUT", "/v1/sources/"+name, gatewaySource)
		return map[string]string{"source": name}
	case "getRequest":
		return map[string]string{"source": "acme-in"}
	case "revokePortalSession":
		return map[string]string{"tenant": "acme", "ps": w.want("POST", "/v1/tenants/acme/portal-sessions", `{}`)["id"].(string)}
	case "revokeOperatorSession":
		return map[string]string{"ps": w.want("POST", "/v1/operator-sessions", `{}`)["id"].(string)}
	}
	return nil
}

// named are the values that a field or parameter may well have, by its name.
func (w *world) named(name string) []string {
	for suffix, kind := range map[string]string{
		"endpoint_id": "ep", "event_id": "evt", "event_ids": "evt", "delivery_ids": "dlv", "tenant": "tenant",
		"event_type": "type", "type": "type", "source": "source",
	} {
		if name == suffix {
			return w.ids[kind]
		}
	}
	return nil
}
