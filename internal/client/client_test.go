package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func TestClient_sendsWhatTheServerExpects(t *testing.T) {
	type seen struct {
		Method, Path, Query, Auth, Type, Key, Prefer, Body string
	}
	var got seen
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), r.Header.Get("Prefer"), string(body)}
		io.WriteString(w, "{}")
	})
	c, err := New(Config{URL: base + "/hooks/", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), Request{Method: "PATCH", Path: Path("v1", "tenants", "a/b c"), Query: url.Values{"state": {"dead", "pending"}}, Body: []byte(`{ "a":1.0}`), IdempotencyKey: "once", Lenient: true})
	if err != nil {
		t.Fatal(err)
	}
	want := seen{"PATCH", "/hooks/v1/tenants/a%2Fb%20c", "state=dead&state=pending", "Bearer k", "application/merge-patch+json", "once", "handling=lenient", `{ "a":1.0}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClient_saysWhatWentWrongInOneSentence(t *testing.T) {
	problem := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"a refusal": {problem(404, `{"code":"unknown_tenant","detail":"there is no tenant acme"}`),
			"the server answered 404 unknown_tenant: there is no tenant acme"},
		"every bad item of a batch": {problem(422, `{"code":"invalid_request","detail":"2 faults","errors":[{"index":0,"path":"type","detail":"is missing"},{"path":"x","detail":"unknown field"}]}`),
			"the server answered 422 invalid_request: 2 faults; item 0 type: is missing; x: unknown field"},
		"another program's answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			io.WriteString(w, "<html>")
		}, "the server answered 502: the answer is not that of a Waybill server"},
		"a redirect, which is not followed with the key": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
			"the server answered 302: the answer is not that of a Waybill server"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{URL: serve(t, row.handle)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Do(t.Context(), Request{Path: "/"})
			if _, ok := errors.AsType[*Error](err); !ok || err.Error() != row.want {
				t.Errorf("got  %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestClient_unreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	c, err := New(Config{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), Request{Path: "/"})
	if _, ok := errors.AsType[*Unreachable](err); !ok || err.Error() != "cannot reach "+address+": nothing listens there; is the server running?" {
		t.Errorf("got %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ctx, Request{Path: "/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call says %v", err)
	}

	html, err := New(Config{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Call[Tenant](t.Context(), html, Request{Path: "/"}); err == nil || !strings.Contains(err.Error(), "its answer is not that of a Waybill server") {
		t.Errorf("a page of another program: %v", err)
	}
}

func TestNew_refusesWhatIsNoAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:8420", "ftp://h", "http://", "://"} {
		if _, err := New(Config{URL: address}); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

func TestEventBody_keepsThePayloadByteForByte(t *testing.T) {
	payload := "{ \"b\": 1.0,\n \"a\": \"<&>\\u00e9\", \"id\": 9007199254740993 }"
	body, err := EventBody(NewEvent{Type: "a.b", Metadata: map[string]string{"k": "v"}}, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Type     string
		Metadata map[string]string
		Payload  json.RawMessage
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if string(got.Payload) != payload || got.Type != "a.b" || got.Metadata["k"] != "v" {
		t.Errorf("body %s", body)
	}
}
