package faults

import (
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

const inboundSecret = "whsec_this_is_what_stripe_signs_with"

// stripeEvent posts an event as Stripe does, and returns the status; 0 is no answer at all.
func stripeEvent(client *http.Client, url, id string) (status int, took time.Duration) {
	body := fmt.Sprintf(`{"id":%q,"type":"invoice.paid", "amount": 10.00}`, id)
	at := fmt.Sprint(time.Now().Unix())
	mac := hmac.New(sha256.New, []byte(inboundSecret))
	mac.Write([]byte(at + "." + body))
	req, err := http.NewRequest(http.MethodPost, url+"/in/billing", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Stripe-Signature", fmt.Sprintf("t=%s,v1=%x", at, mac.Sum(nil)))
	began := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return 0, time.Since(began)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // the status is all that counts
	return res.StatusCode, time.Since(began)
}

// arrivals counts what an internal service behind the gateway is sent, by the provider's id.
type arrivals struct {
	mu  sync.Mutex
	ids map[string]int
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ ID string }
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		return
	}
	a.mu.Lock()
	a.ids[event.ID]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ids)
}

// inboundSite is a server with a source whose events go to a service.
func inboundSite(t *testing.T, binary, database string) (*server, *arrivals) {
	s := newServer(t, binary, database)
	a := &arrivals{ids: map[string]int{}}
	service := httptest.NewServer(a)
	t.Cleanup(service.Close)
	s.start()
	s.endpoint("acme", service.URL)
	status, text := s.Send(t.Context(), http.MethodPut, "/v1/sources/billing",
		fmt.Appendf(nil, `{"provider":"stripe","tenant":"acme","secrets":[%q]}`, inboundSecret))
	if status != http.StatusCreated {
		t.Fatalf("source: %d %s", status, text)
	}
	return s, a
}

// A server that is killed while webhooks arrive loses none that it answered 2xx, and stores none
// twice, however often its provider sends it.
func TestInbound_losesAndDoublesNothingWhenKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	binary := program.Build(t)
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "waybill.db")
		killWhileReceiving(t, binary, "sqlite://"+path, "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)",
			"SELECT json_extract(metadata, '$.source_id') FROM waybill_event")
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		killWhileReceiving(t, binary, dsn, "pgx", dsn, "SELECT metadata->>'source_id' FROM waybill.event")
	})
}

func killWhileReceiving(t *testing.T, binary, database, driver, dsn, stored string) {
	s, service := inboundSite(t, binary, database)
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })

	// Eight senders, each of which repeats an event until it hears 2xx, and sometimes once more.
	const senders, events = 8, 60
	var sent sync.WaitGroup
	for n := range senders {
		client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
		t.Cleanup(client.CloseIdleConnections)
		sent.Go(func() {
			for i := range events {
				id := fmt.Sprintf("evt_%d_%d", n, i)
				for {
					status, _ := stripeEvent(client, "http://"+s.Listen, id)
					if status == http.StatusOK && rand.IntN(5) > 0 {
						break
					}
					if status != 0 && status != http.StatusOK && status != http.StatusServiceUnavailable {
						t.Errorf("%s: %d", id, status)
						return
					}
					<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { sent.Wait(); close(ended) }()
	for range 4 {
		<-time.After(time.Duration(150+rand.IntN(300)) * time.Millisecond) // the moment of death must be any
		s.running.Kill()
		s.start()
	}
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("the senders do not come to an end")
	}

	times := map[string]int{}
	rows, err := db.QueryContext(t.Context(), stored)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		times[id]++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(times) != senders*events {
		t.Errorf("%d of %d events are stored", len(times), senders*events)
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	await(t, time.Minute, "every event to reach the service", func() bool { return service.count() == senders*events })
	await(t, time.Minute, "pending deliveries to end", func() bool {
		sums := s.Verify()
		return sums.Pending == 0 && sums.Waiting == 0
	})
	s.running.Stop()
}

// With the database stopped a provider is told to come back, in time; afterwards its retries give
// exactly what it sent.
func TestInbound_saysComeAgainWhilePostgresIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("stops PostgreSQL")
	}
	database := pgtest.Start(t, nil)
	s, service := inboundSite(t, program.Build(t), database.DSN())
	client := &http.Client{Transport: &http.Transport{}, Timeout: 40 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	url := "http://" + s.Listen
	if status, _ := stripeEvent(client, url, "evt_before"); status != http.StatusOK {
		t.Fatalf("before: %d", status)
	}
	database.Stop()
	var sent sync.WaitGroup
	for i := range 20 {
		sent.Go(func() {
			status, took := stripeEvent(client, url, fmt.Sprint("evt_", i))
			if status != http.StatusServiceUnavailable || took > 20*time.Second {
				t.Errorf("evt_%d: %d after %v", i, status, took)
			}
		})
	}
	sent.Wait()
	database.Start()
	for i := range 20 {
		await(t, time.Minute, "the retry to be taken", func() bool {
			status, _ := stripeEvent(client, url, fmt.Sprint("evt_", i))
			return status == http.StatusOK
		})
	}
	await(t, time.Minute, "the events", func() bool { return service.count() == 21 })
	await(t, time.Minute, "pending deliveries to end", func() bool {
		sums := s.Verify()
		if sums.Events != 21 {
			t.Fatalf("%d events are stored, want 21", sums.Events)
		}
		return sums.Pending == 0 && sums.Waiting == 0
	})
	s.running.Stop()
}
