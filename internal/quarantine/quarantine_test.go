package quarantine

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
	"github.com/waybill-dev/waybill/signature"
)

// The test binary is its own child: the first argument says how that one behaves.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		behave(os.Args[1])
	}
	os.Exit(m.Run())
}

func behave(how string) {
	dying := func() { _, _ = os.Stdin.Read(make([]byte, 1)) } // once its order comes
	switch how {
	case Command:
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "exits", "kills itself", "overflows", "hangs", "looks around":
		hail()
		dying()
		switch how {
		case "exits":
			os.Exit(0)
		case "kills itself":
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				_ = self.Kill()
			}
		case "overflows":
			debug.SetMaxStack(1 << 20)
			overflow(0)
		case "looks around":
			file := os.Args[2]
			_ = os.WriteFile(file, []byte(strings.Join(append(os.Environ(), os.Args...), "\n")), 0o600)
			os.Exit(1)
		}
		select {}
	case "does not come up":
		os.Exit(2)
	case "says something else":
		fmt.Println("PASS")
		os.Exit(0)
	}
}

func overflow(n int) int { return overflow(n+1) + 1 }

// hail says hello as Serve does.
func hail() {
	if err := gob.NewEncoder(os.Stdout).Encode(hello{true}); err != nil {
		os.Exit(3)
	}
}

func runner(t *testing.T, how ...string) *Runner {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Command: append([]string{program}, how...),
		Settings: Settings{
			Policy:       egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			HeaderPrefix: "acme-",
		},
		Clock: &outbox.Clock{},
	})
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func endpoint(url string) attempt.Endpoint {
	return attempt.Endpoint{
		URL:     url,
		Headers: map[string]string{"x-token": "very-secret-token"},
		Secrets: []outbox.Secret{{Value: secret}},
		Timeout: time.Second,
	}
}

func request() attempt.Request {
	return attempt.Request{
		Event:     outbox.NewEventID(time.Now()),
		EventType: "order.paid",
		N:         3,
		Sequence:  7,
		Trigger:   outbox.TriggerSchedule,
		Payload:   []byte(`{ "amount": 1.10 }`),
	}
}

func TestRunner_makesTheAttemptAsTheParentWould(t *testing.T) {
	var body []byte
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		header = req.Header
		w.Header().Set("Content-Type", "text/\xffodd")
		_, _ = w.Write([]byte{0xff, 0, 'a'})
	}))
	defer server.Close()
	q := request()
	o, err := runner(t, Command).Attempt(t.Context(), endpoint(server.URL), q)
	if err != nil {
		t.Fatal(err)
	}
	server.Close() // waits for its handler, whose variables are read below
	if o.Outcome != outbox.OutcomeDelivered || o.StatusCode != 200 || o.ID.IsZero() || o.RequestBytes != len(q.Payload) || o.Duration <= 0 {
		t.Errorf("%+v", o)
	}
	if string(o.ResponseBody) != "\xff\x00a" {
		t.Errorf("the answer came as %q", o.ResponseBody)
	}
	if string(body) != string(q.Payload) {
		t.Errorf("sent %q", body)
	}
	for name, want := range map[string]string{"acme-attempt": "3", "acme-sequence": "7", "x-token": "very-secret-token", "webhook-id": q.Event.String()} {
		if header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, header.Get(name), want)
		}
	}
	key, err := signature.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signature.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	if want := signer.Sign(q.Event.String(), o.At, q.Payload); header.Get("webhook-signature") != want {
		t.Errorf("signed %q, want %q", header.Get("webhook-signature"), want)
	}
}

func TestRunner_keepsToTheParentsPolicy(t *testing.T) {
	r := runner(t, Command)
	r.cfg.Settings.Policy = egress.Policy{}
	o, err := r.Attempt(t.Context(), endpoint("http://127.0.0.1:8080/"), request())
	if err != nil || o.Kind != outbox.KindEgressDenied {
		t.Errorf("%v, %+v: a loopback address is not open", err, o)
	}
}

func TestRunner_tellsHowAChildEnded(t *testing.T) {
	for how, want := range map[string]error{
		"exits":               ErrDied,
		"kills itself":        ErrDied,
		"overflows":           ErrDied,
		"hangs":               ErrHung,
		"does not come up":    nil,
		"says something else": nil,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := endpoint("http://127.0.0.1:1/")
			e.Timeout = 50 * time.Millisecond
			r := runner(t, how)
			if how == "hangs" {
				r.cfg.Margin = 200 * time.Millisecond
			}
			_, err := r.Attempt(t.Context(), e, request())
			if err == nil {
				t.Fatal("no error")
			}
			for _, fault := range []error{ErrDied, ErrHung} {
				if got := errors.Is(err, fault); got != (want == fault) {
					t.Errorf("%v: is %v: %v", err, fault, got)
				}
			}
			if how == "overflows" && !strings.Contains(err.Error(), "stack overflow") {
				t.Errorf("%v does not tell the runtime's reason", err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "very-secret-token") {
				t.Errorf("%v holds a secret", err)
			}
		})
	}
	t.Run("a program that is not there", func(t *testing.T) {
		r := New(Config{Command: []string{filepath.Join(t.TempDir(), "nothing")}, Clock: &outbox.Clock{}})
		if _, err := r.Attempt(t.Context(), endpoint("http://127.0.0.1:1/"), request()); err == nil || errors.Is(err, ErrDied) || errors.Is(err, ErrHung) {
			t.Errorf("%v: nothing was handled, so nobody died of it", err)
		}
	})
	t.Run("the parent ends it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		e := endpoint("http://127.0.0.1:1/")
		e.Timeout = 30 * time.Second
		if _, err := runner(t, "hangs").Attempt(ctx, e, request()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
	})
}

func TestRunner_tellsTheChildSecretsThroughThePipeAlone(t *testing.T) {
	t.Setenv("WAYBILL_API_KEY", "the-operators-key")
	t.Setenv("PGPASSWORD", "the-databases-password")
	seen := filepath.Join(t.TempDir(), "seen")
	if _, err := runner(t, "looks around", seen).Attempt(t.Context(), endpoint("http://127.0.0.1:1/"), request()); !errors.Is(err, ErrDied) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for _, private := range []string{secret, "very-secret-token", "the-operators-key", "the-databases-password", "WAYBILL_", "amount"} {
		if strings.Contains(string(text), private) {
			t.Errorf("the child's arguments and environment hold %q:\n%s", private, text)
		}
	}
}

func TestRunner_routes(t *testing.T) {
	now := time.Now()
	row := outbox.OutboxRow{Shard: 7, Pos: 12, Tenant: 3, Event: outbox.NewEventID(now), HasPayload: true, Source: &outbox.Event{Type: "a.b", Payload: []byte(`{}`)}}
	endpoints := route.NewSubscribers([]*outbox.Endpoint{{ID: outbox.NewEndpointID(now), State: outbox.EndpointActive, EventTypes: []string{"*"}}})
	if err := runner(t, Command).Route(t.Context(), row, endpoints); err != nil {
		t.Error(err)
	}
	if err := runner(t, "exits").Route(t.Context(), row, endpoints); !errors.Is(err, ErrDied) {
		t.Errorf("%v, want that it died", err)
	}
}

// A child whose parent dies must not go on sending: nobody would record it.
func TestServe_endsWithItsParent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
	}))
	defer server.Close()
	e := endpoint(server.URL)
	e.Timeout = 30 * time.Second
	begin := time.Now()
	if err := orphan(t, e); err == nil {
		t.Error("it exited as if all were well")
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it went on for %v", took)
	}
}
