package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill"
)

// load is a crowd of publishers. They go on through every fault; statuses are what the API
// answered them.
type load struct {
	server *server
	ledger *ledger
	tenant string
	db     *sql.DB // for publishers that write to the database themselves

	stop  context.CancelFunc
	group sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int
}

// startLoad lets two publishers send single events, one batches, and one write by SQL.
func startLoad(s *server, l *ledger, tenant string, db *sql.DB) *load {
	ctx, stop := context.WithCancel(s.t.Context())
	p := &load{server: s, ledger: l, tenant: tenant, db: db, stop: stop, statuses: map[int]int{}}
	for _, work := range []func(context.Context){p.single, p.single, p.batch, p.bySQL} {
		p.group.Go(func() {
			// Paced, so that what is accepted can also be delivered between the faults.
			for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; {
				work(ctx)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return p
}

// end stops the publishers, each after its current event.
func (p *load) end() {
	p.stop()
	p.group.Wait()
}

func (p *load) answered(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statuses[status]++
}

// call is one request with a deadline of its own: the end of the load must not cut it, because
// then nobody would know whether it was accepted. It is long because an event whose commit was
// not answered is held until the database is back to say what became of it.
func (p *load) call(path, body string) (int, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	status, text := p.server.Send(ctx, http.MethodPost, "/v1/tenants/"+p.tenant+path, []byte(body))
	p.answered(status)
	return status, text
}

type published struct {
	ID string `json:"id"`
}

// single publishes one event. Every second one has a key and is sent again until it is accepted,
// as a publisher with an outbox of its own does; the others are given up on the first fault.
func (p *load) single(ctx context.Context) {
	n, payload := p.ledger.payload()
	event := fmt.Sprintf(`{"type":"order.paid","payload":%s}`, payload)
	keyed := n%2 == 0
	if keyed {
		event = fmt.Sprintf(`{"type":"order.paid","idempotency_key":"order-%d","payload":%s}`, n, payload)
	}
	for {
		status, text := p.call("/events", event)
		if status == http.StatusAccepted {
			var answer published
			if err := json.Unmarshal(text, &answer); err != nil {
				p.ledger.fault("event %d: %v: %s", n, err, text)
			}
			p.ledger.accept(n, answer.ID)
			return
		}
		if !keyed || ctx.Err() != nil {
			return
		}
		pause(ctx)
	}
}

// batch publishes ten events at once.
func (p *load) batch(ctx context.Context) {
	var numbers []int
	var events []string
	for range 10 {
		n, payload := p.ledger.payload()
		numbers = append(numbers, n)
		events = append(events, fmt.Sprintf(`{"type":"order.paid","payload":%s}`, payload))
	}
	status, text := p.call("/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`)
	if status != http.StatusAccepted {
		pause(ctx)
		return
	}
	var answer struct {
		Data []published `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Data) != len(numbers) {
		p.ledger.fault("batch: %v: %s", err, text)
		return
	}
	for i, n := range numbers {
		p.ledger.accept(n, answer.Data[i].ID)
	}
}

// bySQL publishes two events in a transaction of its own and gives every fourth one up.
func (p *load) bySQL(ctx context.Context) {
	first, one := p.ledger.payload()
	second, two := p.ledger.payload()
	own, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx, err := p.db.BeginTx(own, nil)
	if err != nil {
		pause(ctx)
		return
	}
	ids, err := waybill.PublishAll(own, tx, []waybill.Event{
		{Tenant: p.tenant, Type: "order.paid", Payload: []byte(one)},
		{Tenant: p.tenant, Type: "order.paid", Payload: []byte(two)},
	})
	if err != nil || first%4 == 0 {
		_ = tx.Rollback()
		if err == nil {
			p.ledger.rolledBack(first, second)
		}
		return
	}
	if err := tx.Commit(); err != nil {
		pause(ctx) // nobody knows; it may arrive
		return
	}
	p.ledger.accept(first, ids[0])
	p.ledger.accept(second, ids[1])
}

// pause keeps a publisher that meets a fault from spinning.
func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}
