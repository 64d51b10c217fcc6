package inbound

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are labelled by provider, never by source or tenant: those are unbounded.
type metrics struct {
	requests *prometheus.CounterVec
	rejects  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waybill_inbound_requests_total",
			Help: "Webhooks that arrived, by what became of them.",
		}, []string{"provider", "outcome"}),
		rejects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waybill_inbound_rejects_total",
			Help: "Webhooks that were refused, by why.",
		}, []string{"reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "waybill_inbound_request_seconds",
			Help:    "Time from a webhook's header to its answer.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"provider"}),
	}
	registry.MustRegister(m.requests, m.rejects, m.seconds)
	return m
}

func (m *metrics) answered(provider, outcome string, took time.Duration) {
	m.requests.WithLabelValues(provider, outcome).Inc()
	if took > 0 {
		m.seconds.WithLabelValues(provider).Observe(took.Seconds())
	}
}

func (m *metrics) refused(reason string) { m.rejects.WithLabelValues(reason).Inc() }
