// Package prommetrics counts what receivers observe, for Prometheus.
//
//	m := prommetrics.New()
//	registry.MustRegister(m)
//	receive.NewInbox(ctx, receive.InboxConfig{…, Observe: m.Observe})
//
// Labels are the source, the provider, and words of package receive: nothing that a sender chooses.
package prommetrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/receive"
)

// Metrics is a prometheus.Collector for any number of receivers. Its Observe is safe for concurrent
// use.
type Metrics struct {
	deliveries   *prometheus.CounterVec
	rejects      *prometheus.CounterVec
	unprotected  *prometheus.CounterVec
	events       map[string]*prometheus.CounterVec // by outcome
	requests     *prometheus.HistogramVec
	runs         *prometheus.HistogramVec
	leaseMargin  *prometheus.HistogramVec
	duplicateAge *prometheus.HistogramVec
	skew         *prometheus.HistogramVec
	storeErrors  *prometheus.CounterVec
	storeLost    *prometheus.GaugeVec
}

// New makes the metrics.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "inbound_" + name, Help: help}, append([]string{"source", "provider"}, labels...))
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "inbound_" + name, Help: help, Buckets: buckets}, []string{"source", "provider"})
	}
	const hour, day = 3600, 24 * 3600
	return &Metrics{
		deliveries:  counter("deliveries_total", "Requests answered, by what they came to.", "outcome"),
		rejects:     counter("signature_rejects_total", "Requests that did not verify, by why.", "reason"),
		unprotected: counter("unprotected_runs_total", "Runs, or stored events, while the store was down: nothing kept a twin away.", "reason"),
		storeErrors: counter("store_errors_total", "Requests for which the store did not answer.", "reason"),
		storeLost: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "inbound_store_lost", Help: "1 while the store does not answer and is asked once a second, else 0.",
		}, []string{"source", "provider"}),
		events: map[string]*prometheus.CounterVec{
			receive.LeaseLost:     counter("lease_lost_total", "Runs that another overtook."),
			receive.ConfirmFailed: counter("confirm_failed_total", "Successes that could not be recorded; the event may run again."),
			receive.ReleaseFailed: counter("release_failed_total", "Claims that could not be given back; the event waits for the lease to end."),
			receive.Takeover:      counter("takeovers_total", "Runs after one that ended without an outcome."),
			receive.OtherBody:     counter("fingerprint_mismatch_total", "Repeats with another body."),
			receive.Overrun:       counter("overruns_total", "Handlers that ignored their deadline."),
			receive.DeadLettered:  counter("dead_letters_total", "Events given up."),
		},
		requests:     histogram("request_seconds", "From a request's arrival to its answer.", .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		runs:         histogram("run_seconds", "Duration of a handler's run.", .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60),
		leaseMargin:  histogram("lease_margin_seconds", "What was left of the lease when a run ended; below zero it was over.", -10, -1, 0, 1, 2.5, 5, 10, 30, 60),
		duplicateAge: histogram("duplicate_age_seconds", "Time from an event's arrival to its repeat: how long to remember it.", 1, 10, 60, 600, hour, 6*hour, day, 3*day, 7*day, 30*day),
		skew:         histogram("timestamp_skew_seconds", "The sender's signed time, less ours.", -300, -60, -10, -2, 2, 10, 60, 300),
	}
}

// Observe is a receive.Observer.
func (m *Metrics) Observe(_ context.Context, o receive.Observation) {
	if o.Step == receive.StepStore {
		m.store(&o)
		return
	}
	if o.Step == receive.StepRequest && o.Key == (receive.Key{}) { // of the whole request
		m.storeLost.WithLabelValues(o.Source, o.Provider) // there from the first request on
		m.deliveries.WithLabelValues(o.Source, o.Provider, o.Outcome).Inc()
		m.requests.WithLabelValues(o.Source, o.Provider).Observe(o.Took.Seconds())
		if o.Outcome == receive.Rejected {
			m.rejects.WithLabelValues(o.Source, o.Provider, o.Reason).Inc()
		}
		if o.Skew != 0 {
			m.skew.WithLabelValues(o.Source, o.Provider).Observe(o.Skew.Seconds())
		}
		if o.Outcome != receive.Degraded || o.Reason == "" {
			return // a Sync's degraded run is observed as such
		}
	}
	switch {
	case o.Outcome == receive.Degraded:
		m.unprotected.WithLabelValues(o.Source, o.Provider, o.Reason).Inc()
		return
	case o.Outcome == receive.Duplicate && o.Age > 0:
		m.duplicateAge.WithLabelValues(o.Source, o.Provider).Observe(o.Age.Seconds())
	}
	if o.Step == receive.StepRun && o.LeaseLeft != 0 {
		m.leaseMargin.WithLabelValues(o.Source, o.Provider).Observe(o.LeaseLeft.Seconds())
		m.runs.WithLabelValues(o.Source, o.Provider).Observe(o.Took.Seconds())
	}
	if c := m.events[o.Outcome]; c != nil {
		c.WithLabelValues(o.Source, o.Provider).Inc()
	}
}

func (m *Metrics) store(o *receive.Observation) {
	switch o.Outcome {
	case receive.Failed:
		m.storeErrors.WithLabelValues(o.Source, o.Provider, o.Reason).Inc()
	case receive.StoreLost:
		m.storeLost.WithLabelValues(o.Source, o.Provider).Set(1)
	case receive.StoreBack:
		m.storeLost.WithLabelValues(o.Source, o.Provider).Set(0)
	}
}

// Describe is prometheus.Collector's.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect is prometheus.Collector's.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	all := []prometheus.Collector{m.deliveries, m.rejects, m.unprotected, m.requests, m.runs, m.leaseMargin, m.duplicateAge, m.skew, m.storeErrors, m.storeLost}
	for _, c := range m.events {
		all = append(all, c)
	}
	return all
}
