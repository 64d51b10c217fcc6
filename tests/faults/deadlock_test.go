package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

// Results of an endpoint are recorded, some of which disable it, while others change the endpoint
// and enable it again: nobody may be refused because of the other, and nothing may be lost.
func TestServer_changesOfAnEndpointNeverCollideWithItsResults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and runs it")
	}
	dsn := pgtest.DSN(t)
	s := newServer(t, program.Build(t), dsn)
	s.start()
	const events = 600
	var requests atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1)%8 == 0 {
			w.WriteHeader(http.StatusGone) // the third within ten minutes disables the endpoint
		}
	}))
	t.Cleanup(receiver.Close)
	s.endpoint("acme", receiver.URL)
	send := func(method, path, body string) []byte {
		status, text := s.Send(context.Background(), method, path, []byte(body))
		if status < 200 || status > 299 {
			t.Errorf("%s %s: %d %s", method, path, status, text)
		}
		return text
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(send("GET", "/v1/tenants/acme/endpoints", ""), &list); err != nil || len(list.Data) != 1 {
		t.Fatalf("endpoints: %v, %v", list.Data, err)
	}
	endpoint := "/v1/tenants/acme/endpoints/" + list.Data[0].ID

	done, stop := context.WithCancel(t.Context())
	var changers sync.WaitGroup
	var changes atomic.Int64
	for n := range 4 {
		changers.Go(func() {
			for i := 0; done.Err() == nil; i++ {
				send("PATCH", endpoint, fmt.Sprintf(`{"state":"active","description":"%d/%d"}`, n, i))
				changes.Add(1)
			}
		})
	}
	for range events / 50 {
		item := `{"type":"order.paid","payload":{"n":1}}`
		send("POST", "/v1/tenants/acme/events/batch", `{"events":[`+strings.Repeat(item+",", 49)+item+`]}`)
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	count := func(query string) (n int) {
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, 2*time.Minute, "every delivery to end", func() bool {
		return count("SELECT count(*) FROM waybill.delivery") == 0 && count("SELECT count(*) FROM waybill.outbox") == 0
	})
	stop()
	changers.Wait()
	s.running.Stop() // a session tells what it has met when it ends
	gone := int(requests.Load()) / 8
	if n := count("SELECT count(*) FROM waybill.dead_letter"); n != gone {
		t.Errorf("%d dead letters, the receiver answered 410 %d times", n, gone)
	}
	if n := count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	if totals := s.Verify(); totals.Events < events || totals.Pending != 0 {
		t.Errorf("the books: %+v", totals)
	}
	t.Logf("%d changes beside %d requests", changes.Load(), requests.Load())
}
