package waybilltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/sqlite"
	"github.com/waybill-dev/waybill/signature"
	"github.com/waybill-dev/waybill/waybilltest"
)

// pay is the application's code under test.
func pay(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := waybill.Publish(ctx, tx, waybill.Event{
		Tenant:  "acme",
		Type:    "payment.succeeded",
		Payload: []byte(`{"id":"` + id + `"}`),
	})
	return err
}

func ExampleRequirePublished() {
	t := newT() // in a test, its own *testing.T
	defer t.end()
	tx := applicationTx(t)

	if err := pay(t.Context(), tx, "pay_1"); err != nil {
		t.Fatal(err)
	}
	found := waybilltest.RequirePublished(t, tx, waybill.Event{Tenant: "acme", Type: "payment.succeeded"})
	fmt.Println(string(found[0].Payload))
	// Output: {"id":"pay_1"}
}

func ExamplePublished() {
	t := newT()
	defer t.end()
	tx := applicationTx(t)

	for _, id := range []string{"pay_1", "pay_2"} {
		if err := pay(t.Context(), tx, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, event := range waybilltest.Published(t, tx) {
		fmt.Println(event.Tenant, event.Type, string(event.Payload))
	}
	// Output:
	// acme payment.succeeded {"id":"pay_1"}
	// acme payment.succeeded {"id":"pay_2"}
}

func ExampleRequireNothingPublished() {
	t := newT()
	defer t.end()
	tx := applicationTx(t)

	waybilltest.RequireNothingPublished(t, tx) // the test ends here if there is any event
	fmt.Println("nothing")
	// Output: nothing
}

func ExampleReceiver() {
	t := newT() // in a test, its own *testing.T
	defer t.end()

	receiver := waybilltest.NewReceiver(t)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receiver.Trust(secret) // what the endpoint with receiver.URL was made with

	// The first request is told to come again; what Waybill does then, deliver does here.
	receiver.Answer(waybilltest.Answer{Status: http.StatusServiceUnavailable})
	deliver(t, receiver.URL, secret, `{"id":"pay_1"}`)
	deliver(t, receiver.URL, secret, `{"id":"pay_1"}`)

	accepted := receiver.Await(1, 5*time.Second)
	fmt.Println(string(accepted[0].Body), len(receiver.Received()))
	// Output: {"id":"pay_1"} 2
}

// deliver sends a signed request as Waybill does.
func deliver(t testing.TB, to, secretText, body string) {
	secret, err := signature.ParseSecret(secretText)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signature.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	const id = "evt_01m8mnc692fxgt1qs89yv86m2t"
	now := time.Now()
	req.Header.Set(signature.HeaderID, id)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(signature.HeaderSignature, signer.Sign(id, now, []byte(body)))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

// applicationTx is a transaction in an application's SQLite file with the tenant acme.
func applicationTx(t testing.TB) *sql.Tx {
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "waybill-example")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "app.db")
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	address := url.URL{Scheme: "file", Path: path, RawQuery: "_txlock=immediate"}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	// 130 is the shard of acme: the first byte of its SHA-256.
	_, err = tx.ExecContext(ctx, `
		INSERT INTO waybill_tenant (shard, key, created_at, updated_at, resumed_at)
		VALUES (130, 'acme', 0, 0, 0)`)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// exampleT is what an example, which has no *testing.T, can hand to the helpers.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func newT() *exampleT { return &exampleT{} }

func (*exampleT) Helper()                           {}
func (*exampleT) Context() context.Context          { return context.Background() }
func (*exampleT) Fatal(args ...any)                 { log.Fatal(args...) }
func (*exampleT) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleT) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
