package api

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Traffic answers what happened; *traffic.Tally, which also knows what this process has not
// written down yet.
type Traffic interface {
	// Of returns figures of the query's time, added up by unit, in order.
	Of(ctx context.Context, q outbox.TrafficQuery, unit time.Duration) ([]outbox.Traffic, error)
}

// storedTraffic is what is written down, where there is no tally in this process.
type storedTraffic struct{ store outbox.Figures }

func (s storedTraffic) Of(ctx context.Context, q outbox.TrafficQuery, unit time.Duration) ([]outbox.Traffic, error) {
	rows, err := s.store.TrafficOf(ctx, q)
	return outbox.FoldTraffic(rows, unit), err
}

// statsView is what happened in a span of time.
type statsView struct {
	From          stamp        `json:"from"`
	To            stamp        `json:"to"`
	BucketSeconds int          `json:"bucket_seconds"`
	Totals        figuresView  `json:"totals"`
	Data          []bucketView `json:"data" doc:"In order of time, one for each bucket, empty ones too"`
}

// bucketView is one step of it.
type bucketView struct {
	At stamp `json:"at" doc:"Where it begins"`
	figuresView
}

// figuresView is figures that add up, and what follows from them.
type figuresView struct {
	Published      int64        `json:"published" doc:"Events accepted and routed"`
	Unmatched      int64        `json:"unmatched" doc:"Of these, those that no endpoint wanted"`
	Planned        int64        `json:"planned" doc:"Deliveries made of them"`
	Delivered      int64        `json:"delivered"`
	Failed         int64        `json:"failed" doc:"Deliveries that ended dead"`
	Cancelled      int64        `json:"cancelled"`
	Attempts       attemptsView `json:"attempts"`
	SuccessRate    *float64     `json:"success_rate" doc:"Of the attempts, from 0 to 1; null if there were none"`
	DeliveryMS     quantileView `json:"delivery_ms" doc:"From publishing to delivered, replays left out"`
	FirstAttemptMS quantileView `json:"first_attempt_ms" doc:"From publishing to the start of the first attempt"`
	AttemptMS      quantileView `json:"attempt_ms" doc:"How long attempts took"`
}

type attemptsView struct {
	Total     int64 `json:"total"`
	Delivered int64 `json:"delivered"`
	Transient int64 `json:"transient"`
	Permanent int64 `json:"permanent"`
}

// quantileView is what half, 95 and 99 of a hundred did not exceed, within 8 %; null if there
// were none.
type quantileView struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

func viewQuantiles(l outbox.Latencies) quantileView {
	at := func(q float64) *float64 {
		d, any := l.Quantile(q)
		if !any {
			return nil
		}
		return new(millis(d))
	}
	return quantileView{P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}

func viewFigures(c *outbox.Counts) figuresView {
	view := figuresView{
		Published: c.Published, Unmatched: c.Unmatched, Planned: c.Planned,
		Delivered: c.Delivered, Failed: c.Failed, Cancelled: c.Cancelled,
		Attempts:   attemptsView{Total: c.Attempts(), Delivered: c.Succeeded, Transient: c.Transient, Permanent: c.Permanent},
		DeliveryMS: viewQuantiles(c.Arrived), FirstAttemptMS: viewQuantiles(c.First), AttemptMS: viewQuantiles(c.Answer),
	}
	if rate, any := c.SuccessRate(); any {
		view.SuccessRate = &rate
	}
	return view
}

const (
	// maxBuckets is how many steps one answer has at most.
	maxBuckets = 2_000
	// minBucket is the finest step there are figures for.
	minBucket = time.Minute
)

var bucketWord = regexp.MustCompile(`^([1-9][0-9]{0,4})([smhd])$`)

// bucket reads the length of a step; the default suits the span.
func (p *params) bucket(span time.Duration) time.Duration {
	word := p.text("bucket", 8)
	if word == "" {
		switch {
		case span <= 3*time.Hour:
			return time.Minute
		case span <= 3*24*time.Hour:
			return time.Hour
		}
		return 24 * time.Hour
	}
	parts := bucketWord.FindStringSubmatch(word)
	if parts == nil {
		p.bad("bucket", "want a length of time such as 1m, 5m, 1h or 1d")
		return time.Hour
	}
	n, _ := strconv.Atoi(parts[1]) // at most five digits
	unit := time.Duration(n) * map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[parts[2]]
	switch {
	case unit < minBucket || unit%minBucket != 0 || 24*time.Hour%unit != 0 && unit%(24*time.Hour) != 0:
		p.bad("bucket", "want whole minutes that divide a day, or whole days")
		return time.Hour
	case span/unit > maxBuckets:
		p.bad("bucket", "%s is too fine for this span: at most %d steps", word, maxBuckets)
		return span
	}
	return unit
}

// stats serves the tenant's route and, with the zero tenant, the operator's.
func (a *API) stats(q *request) (*answer, error) {
	p := q.params()
	query := outbox.TrafficQuery{Tenant: q.tenant.TenantRef}
	query.From, query.To = p.span()
	if query.To.IsZero() {
		query.To = q.now
	}
	if query.From.IsZero() {
		query.From = query.To.Add(-24 * time.Hour)
	}
	if query.To.Before(query.From) {
		p.bad("from", "lies after to")
	}
	unit := p.bucket(query.To.Sub(query.From))
	if q.route.operator {
		t, err := a.tenantParam(q, p)
		if err != nil {
			return nil, err
		}
		if t != nil {
			query.Tenant = t.TenantRef
		}
	}
	query.Endpoint = id(p, "endpoint_id", outbox.ParseEndpointID)
	if err := p.err(); err != nil {
		return nil, err
	}
	if !query.Endpoint.IsZero() {
		e, err := a.cfg.Store.Endpoint(q.Context(), query.Tenant, outbox.EndpointRef{ID: query.Endpoint})
		if err != nil {
			return nil, err
		}
		query.Tenant = e.Tenant
	}
	view, err := a.statsOf(q.Context(), query, unit)
	if err != nil {
		return nil, err
	}
	return ok(view)
}

// statsOf fills in the steps in which nothing happened. Figures are kept by the minute, so the span
// begins with the step it begins in.
func (a *API) statsOf(ctx context.Context, query outbox.TrafficQuery, unit time.Duration) (statsView, error) {
	view := statsView{From: stamp(query.From), To: stamp(query.To), BucketSeconds: int(unit.Seconds()), Data: []bucketView{}}
	query.From = query.From.Truncate(minBucket)
	rows, err := a.cfg.Traffic.Of(ctx, query, unit)
	if err != nil {
		return view, err
	}
	var total outbox.Counts
	for at := query.From.Truncate(unit); at.Before(query.To); at = at.Add(unit) {
		var counts outbox.Counts
		for len(rows) > 0 && !rows[0].At.After(at) {
			counts.Add(&rows[0].Counts)
			rows = rows[1:]
		}
		total.Add(&counts)
		view.Data = append(view.Data, bucketView{At: stamp(at), figuresView: viewFigures(&counts)})
	}
	view.Totals = viewFigures(&total)
	return view, nil
}
