package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Metrics are the instruments that count as things happen. What can be looked up is collected
// when somebody asks, see Watch.
type Metrics struct {
	accepted  prometheus.Counter
	refused   *prometheus.CounterVec
	routed    prometheus.Counter
	planned   prometheus.Counter
	attempts  *prometheus.CounterVec
	ended     *prometheus.CounterVec
	first     prometheus.Histogram
	delivered prometheus.Histogram
	attempt   prometheus.Histogram
	batch     *prometheus.HistogramVec
	store     *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	taken     *prometheus.CounterVec
}

// Waits between being accepted and something else, in seconds: the promises are made in
// milliseconds, the troubles last for days.
var waits = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800, 7200, 28800, 86400}

// New makes the instruments and registers them.
func New(registry *prometheus.Registry) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	accepted := counter("waybill_events_accepted_total", "Events this process has made durable. Those written by SQL are not among them; they are among the routed.")
	routed := counter("waybill_events_routed_total", "Events this process has planned deliveries for.")
	planned := counter("waybill_deliveries_planned_total", "Deliveries planned by this process.")
	first := histogram("waybill_first_attempt_seconds", "From an event's acceptance to its delivery's first attempt.", waits)
	delivered := histogram("waybill_delivered_seconds", "From an event's acceptance to its arrival; replays are not counted.", waits)
	attempt := histogram("waybill_attempt_seconds", "How long attempts took.", []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30})
	m := &Metrics{
		accepted:  accepted.WithLabelValues(),
		refused:   counter("waybill_publish_refused_total", "Events that were not accepted, by reason: conflict, overload.", "reason"),
		routed:    routed.WithLabelValues(),
		planned:   planned.WithLabelValues(),
		attempts:  counter("waybill_attempts_total", "Attempts recorded, by outcome and kind of failure.", "outcome", "kind"),
		ended:     counter("waybill_deliveries_ended_total", "Deliveries that ended: delivered, or the reason why not.", "end"),
		first:     first.WithLabelValues().(prometheus.Histogram),
		delivered: delivered.WithLabelValues().(prometheus.Histogram),
		attempt:   attempt.WithLabelValues().(prometheus.Histogram),
		batch:     histogram("waybill_batch_size", "Rows a transaction of the hot path wrote, by what it was for.", []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000}, "for"),
		store:     histogram("waybill_store_seconds", "How long calls of the hot path took in the database.", []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15}, "call"),
		failures:  counter("waybill_store_failures_total", "Calls of the hot path that failed, by call; they are tried again.", "call"),
		taken:     counter("waybill_shards_taken_total", "Shards this process took, from a node that released them (cleanly) or from one that died.", "from"),
	}
	registry.MustRegister(accepted, m.refused, routed, planned, m.attempts, m.ended, first, delivered, attempt, m.batch, m.store, m.failures, m.taken)
	// Every series an alert divides by exists from the start: a ratio without a denominator is no
	// number, and an alert on it never fires.
	for _, outcome := range []outbox.Outcome{outbox.OutcomeDelivered, outbox.OutcomeTransient, outbox.OutcomePermanent} {
		m.attempts.WithLabelValues(string(outcome), "")
	}
	for _, end := range []string{"delivered", string(outbox.DeadPermanent), string(outbox.DeadExhausted), string(outbox.DeadExpired), string(outbox.DeadPoison), string(outbox.DeadCancelled)} {
		m.ended.WithLabelValues(end)
	}
	for _, reason := range []string{refusedConflict, refusedOverload} {
		m.refused.WithLabelValues(reason)
	}
	m.taken.WithLabelValues(fromReleased)
	m.taken.WithLabelValues(fromDead)
	return m
}

// Values of labels.
const (
	refusedConflict = "conflict" // the id or the idempotency key is taken by another event
	refusedOverload = "overload" // the database was away or too slow; the publisher was told to come again

	fromReleased = "released"
	fromDead     = "dead"
)
