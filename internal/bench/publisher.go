package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// load says what a publisher process does.
type load struct {
	URL      string        `json:"url"`      // of the server
	Key      string        `json:"key"`      // API key
	Sink     string        `json:"sink"`     // to see how much has arrived
	Group    string        `json:"group"`    // of the sink, and of the tenants: group-0 …
	Tenants  int           `json:"tenants"`  // how many
	Batch    int           `json:"batch"`    // events a request; 1: one POST an event
	Database string        `json:"database"` // publish by SQL there instead, a batch a transaction
	Workers  int           `json:"workers"`
	Rate     float64       `json:"rate"`     // events a second; 0: as fast as they are delivered
	Backlog  int64         `json:"backlog"`  // events under way at most, where Rate is 0
	Events   int64         `json:"events"`   // how many to publish; 0: until Duration is over
	Duration time.Duration `json:"duration"` // how long to publish at most
	Leave    bool          `json:"leave"`    // do not wait for what was published to arrive
	Secret   string        `json:"secret"`   // send to the sources group-0 … as a provider who signs with it
}

// loadResult is what a publisher tells when it has published and all has arrived.
type loadResult struct {
	Published int64         `json:"published"`
	Refused   int64         `json:"refused"`
	Elapsed   time.Duration `json:"elapsed"` // from the first request to the last arrival
}

// runPublisher reads a load as JSON from standard input and writes its loadResult.
func runPublisher(ctx context.Context) error {
	var l load
	if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
		return err
	}
	p := &publisher{load: l, client: newClient(4)}
	if l.Database != "" {
		pool, err := pgxpool.New(ctx, l.Database)
		if err != nil {
			return err
		}
		defer pool.Close()
		p.pool = pool
	}
	result, err := p.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

type publisher struct {
	load
	client    *http.Client  // for the sink
	pool      *pgxpool.Pool // nil: publish by HTTP
	numbers   atomic.Int64
	published atomic.Int64
	refused   atomic.Int64
	arrived   atomic.Int64
}

func (p *publisher) run(ctx context.Context) (loadResult, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go p.watch(watching)

	begin := time.Now()
	end := begin.Add(p.Duration)
	var workers sync.WaitGroup
	failures := make([]error, p.Workers)
	for i := range p.Workers {
		workers.Go(func() { failures[i] = p.work(ctx, i, begin, end) })
	}
	workers.Wait()
	if err := errors.Join(failures...); err != nil {
		return loadResult{}, err
	}
	// All must arrive; a quarter more time than it took to publish, and some, is plenty.
	patience := time.Now().Add(p.Duration/4 + 5*time.Second)
	for !p.Leave && p.arrived.Load() < p.published.Load() {
		if time.Now().After(patience) || ctx.Err() != nil {
			return loadResult{}, fmt.Errorf("%d of %d events arrived", p.arrived.Load(), p.published.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return loadResult{p.published.Load(), p.refused.Load(), time.Since(begin)}, nil
}

func (p *publisher) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if s, err := p.stats(ctx); err == nil {
			p.arrived.Store(s.Distinct)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

func (p *publisher) stats(ctx context.Context) (sinkStats, error) {
	var s sinkStats
	return s, getJSON(ctx, p.client, p.Sink+"/stats/"+p.Group, "", &s)
}

func (p *publisher) work(ctx context.Context, worker int, begin, end time.Time) error {
	c, err := newCaller(p.URL)
	if err != nil {
		return err
	}
	defer c.close()
	for turn := 0; ctx.Err() == nil && time.Now().Before(end); turn++ {
		first := p.numbers.Add(int64(p.Batch)) - int64(p.Batch)
		if p.Events > 0 && first >= p.Events {
			return nil
		}
		switch {
		case p.Rate > 0:
			due := begin.Add(time.Duration(float64(first) / p.Rate * float64(time.Second)))
			time.Sleep(time.Until(due))
		default:
			for p.published.Load()-p.arrived.Load() > p.Backlog && ctx.Err() == nil {
				time.Sleep(2 * time.Millisecond)
			}
		}
		tenant := (worker + turn*p.Workers) % p.Tenants
		if err := p.publish(ctx, c, tenant, first); err != nil {
			p.refused.Add(int64(p.Batch))
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.published.Add(int64(p.Batch))
	}
	return nil
}

func (p *publisher) publish(ctx context.Context, c *caller, tenant int, first int64) error {
	if p.pool != nil {
		return p.publishSQL(ctx, tenant, first)
	}
	if p.Secret != "" {
		return p.send(ctx, c, tenant, first)
	}
	var body []byte
	now := time.Now()
	path := "/events"
	if p.Batch == 1 {
		body = appendEvent(nil, first, now)
	} else {
		path = "/events/batch"
		body = append(body, `{"events":[`...)
		for i := range p.Batch {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendEvent(body, first+int64(i), now)
		}
		body = append(body, `]}`...)
	}
	return c.post(ctx, fmt.Sprintf("/v1/tenants/%s-%d%s", p.Group, tenant, path), []field{{"Authorization", "Bearer " + p.Key}}, body)
}

// publishSQL publishes a batch the way an application does, in a transaction of its own.
func (p *publisher) publishSQL(ctx context.Context, tenant int, first int64) error {
	now := time.Now()
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		for i := range p.Batch {
			payload := appendPayload(nil, first+int64(i), now)
			b.Queue(`SELECT waybill.publish(tenant => $1, type => 'bench.event', payload => $2::text)`,
				fmt.Sprintf("%s-%d", p.Group, tenant), string(payload))
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}

func appendEvent(b []byte, n int64, now time.Time) []byte {
	b = append(b, `{"type":"bench.event","payload":`...)
	b = appendPayload(b, n, now)
	return append(b, '}')
}
