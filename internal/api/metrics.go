package api

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are labelled by route and status, never by tenant or endpoint: those are unbounded.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waybill_http_requests_total",
			Help: "Requests the API has answered.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "waybill_http_request_seconds",
			Help:    "Time from a request's header to its answer.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route"}),
	}
	registry.MustRegister(m.requests, m.seconds)
	return m
}

// callMetrics are one route's, found once instead of at every request.
type callMetrics struct {
	byStatus [600]prometheus.Counter // nil: a status the route does not document
	other    func(status int) prometheus.Counter
	seconds  func() prometheus.Observer
}

func (m *metrics) of(r *route) *callMetrics {
	c := &callMetrics{
		// A route that nobody calls shows no sixteen empty buckets.
		seconds: sync.OnceValue(func() prometheus.Observer { return m.seconds.WithLabelValues(r.method, r.path) }),
		other: func(status int) prometheus.Counter {
			return m.requests.WithLabelValues(r.method, r.path, strconv.Itoa(status))
		},
	}
	for status := range r.answers {
		c.byStatus[status] = c.other(status)
	}
	return c
}

func (c *callMetrics) observe(status int, took time.Duration) {
	counter := c.byStatus[status]
	if counter == nil {
		counter = c.other(status)
	}
	counter.Inc()
	c.seconds().Observe(took.Seconds())
}
