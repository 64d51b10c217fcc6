package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// vitalsEvery is how old what the database was asked may be, and vitalsShare how much of the
	// time the asking may take: a slow database is not to be slowed further by being watched.
	vitalsEvery   = 10 * time.Second
	vitalsShare   = 20
	vitalsTimeout = 5 * time.Second
)

// Sources are asked when somebody collects.
type Sources struct {
	Store outbox.Monitoring
	Clock *outbox.Clock
	// Node says how this process's share of the work stands.
	Node func() dispatch.Status
	// Version of the program.
	Version string
}

// Watch registers what is looked up at every collection. The returned Books takes the outcome of
// proofs.
func Watch(registry *prometheus.Registry, s Sources) *Books {
	w := &watcher{Sources: s, books: &Books{}}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	w.build = gauge("waybill_build_info", "1, labelled by version.", "version")
	w.shards = gauge("waybill_shards_held", "Shards this process owns; over all processes 256.")
	w.inFlight = gauge("waybill_in_flight", "Attempts under way in this process.")
	w.inMemory = gauge("waybill_deliveries_in_memory", "Deliveries this process has in memory.")
	w.unrecorded = gauge("waybill_results_unrecorded", "Results that are not in the database yet.")
	w.queued = gauge("waybill_outbox_in_memory", "Outbox rows this process has in memory.")
	w.beat = gauge("waybill_heartbeat_age_seconds", "Since this process's last successful heartbeat.")
	w.breakers = gauge("waybill_breakers", "Endpoints of this process's shards whose breaker is open or probing.", "state")
	w.runnable = gauge("waybill_runnable_oldest_age_seconds", "How long the delivery has been due that has waited longest for this process alone: not for its endpoint, its tenant's cap, a limit or a pause.")
	w.up = gauge("waybill_store_up", "Whether the database answered when it was last asked for what follows.")
	w.pending = gauge("waybill_deliveries_pending", "Deliveries that are neither delivered nor ended.")
	w.oldest = gauge("waybill_pending_oldest_age_seconds", "Age of the event whose delivery has been pending for longest.")
	w.letters = gauge("waybill_dead_letters", "Dead letters kept, dead and cancelled.")
	w.outbox = gauge("waybill_outbox_oldest_age_seconds", "Age of the oldest event that is not routed yet.")
	w.transaction = gauge("waybill_store_oldest_transaction_seconds", "How long a transaction of this database has been open; on SQLite, how long the file's write lock has been waited for.")
	w.days = gauge("waybill_partition_days_ahead", "Whole days after today that can take events.")
	w.bytes = gauge("waybill_store_bytes", "What the database takes up on disk.")
	w.imbalance = gauge("waybill_books_imbalance", "How far the books were out at the last proof, added up over all equations; 0 is the only good value.")
	w.proved = gauge("waybill_books_proved_timestamp_seconds", "When the books were last proved.")
	registry.MustRegister(w)
	return w.books
}

// watcher collects. It implements prometheus.Collector.
type watcher struct {
	Sources
	books *Books

	build, shards, inFlight, inMemory, unrecorded, queued, beat, breakers, runnable *prometheus.Desc
	up, pending, oldest, letters, outbox, transaction, days, bytes                  *prometheus.Desc
	imbalance, proved                                                               *prometheus.Desc

	mu     sync.Mutex // held while the database is asked, so that it is asked once
	vitals outbox.Vitals
	err    error
	next   time.Time // when to ask again
}

// Describe implements prometheus.Collector.
func (w *watcher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(w, ch) }

// Collect implements prometheus.Collector.
func (w *watcher) Collect(ch chan<- prometheus.Metric) {
	now := w.Clock.Now()
	set := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	set(w.build, 1, w.Version)

	node := w.Node()
	set(w.shards, float64(node.Shards))
	set(w.inFlight, float64(node.InFlight))
	set(w.inMemory, float64(node.InMemory))
	set(w.unrecorded, float64(node.Unrecorded))
	set(w.queued, float64(node.Queued))
	set(w.beat, node.BeatAge.Seconds())
	set(w.breakers, float64(node.Open), "open")
	set(w.breakers, float64(node.Probing), "probing")
	set(w.runnable, age(now, node.RunnableSince))

	vitals, err := w.ask(now)
	if err != nil {
		set(w.up, 0)
	} else {
		set(w.up, 1)
		set(w.pending, float64(vitals.Pending))
		set(w.oldest, age(now, vitals.OldestPending))
		set(w.letters, float64(vitals.DeadLetters))
		set(w.outbox, age(now, vitals.OldestUnrouted))
		set(w.transaction, vitals.OldestTransaction.Seconds())
		set(w.days, float64(vitals.PartitionDaysAhead))
		set(w.bytes, float64(vitals.Bytes))
	}
	if imbalance, at, known := w.books.last(); known {
		set(w.imbalance, float64(imbalance))
		set(w.proved, float64(at.UnixMilli())/1e3)
	}
}

// age is 0 for what is not there.
func age(now, since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Seconds())
}

// ask returns what the database said, not more often than is good for it.
func (w *watcher) ask(now time.Time) (outbox.Vitals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	began := time.Now()
	if began.Before(w.next) {
		return w.vitals, w.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), vitalsTimeout)
	defer cancel()
	w.vitals, w.err = w.Store.Vitals(ctx, now)
	ended := time.Now()
	w.next = ended.Add(max(vitalsEvery, vitalsShare*ended.Sub(began)))
	return w.vitals, w.err
}

// Books remembers the last proof of the books.
type Books struct {
	mu        sync.Mutex
	at        time.Time
	imbalance int64
}

// Proved notes a proof.
func (b *Books) Proved(report outbox.Report) {
	var out int64
	for _, c := range report.Checks {
		for _, i := range c.Broken {
			out += max(i.Left-i.Right, i.Right-i.Left, 1) // an equation that fails by nothing fails all the same
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.imbalance = report.At, out
}

func (b *Books) last() (imbalance int64, at time.Time, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.imbalance, b.at, !b.at.IsZero()
}
