package metrics

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// database answers what a test wants it to.
type database struct {
	outbox.Store
	vitals    outbox.Vitals
	err       error
	asked     int
	accepted  []outbox.Accepted
	conflicts []outbox.Conflict
}

func (d *database) Vitals(context.Context, time.Time) (outbox.Vitals, error) {
	d.asked++
	return d.vitals, d.err
}

func (d *database) InsertEvents(context.Context, []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	return d.accepted, d.conflicts, d.err
}

func (d *database) Finish(context.Context, []outbox.Result) (outbox.Finished, error) {
	return outbox.Finished{}, d.err
}

func (d *database) Take(_ context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	lease := outbox.Lease{Node: node, Epochs: map[outbox.Shard]int64{}}
	for _, s := range shards[1:] { // somebody else was quicker with the first
		lease.Epochs[s.Shard] = 1
	}
	return lease, nil, d.err
}

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// value returns a series' value, or its sample count if it is a histogram; NaN if it is not there.
func value(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			var have []string
			for _, pair := range series.GetLabel() {
				have = append(have, pair.GetValue())
			}
			if !slices.Equal(have, labels) {
				continue
			}
			switch {
			case series.GetHistogram() != nil:
				return float64(series.GetHistogram().GetSampleCount())
			case series.GetCounter() != nil:
				return series.GetCounter().GetValue()
			}
			return series.GetGauge().GetValue()
		}
	}
	return math.NaN()
}

func TestMeasured_countsWhatTheDatabaseTook(t *testing.T) {
	registry := prometheus.NewRegistry()
	db := &database{accepted: []outbox.Accepted{{}, {Duplicate: true}, {}}}
	counted := New(registry)
	store := Measure(db, counted)
	ctx := t.Context()
	three := make([]outbox.NewEvent, 3)

	store.InsertEvents(ctx, three)
	db.conflicts = make([]outbox.Conflict, 2)
	store.InsertEvents(ctx, three)
	db.conflicts, db.err = nil, errors.New("away")
	store.InsertEvents(ctx, three)

	event := outbox.NewEventID(now)
	attempt := func(outcome outbox.Outcome, kind outbox.Kind) *outbox.Attempt {
		return &outbox.Attempt{At: now.Add(20 * time.Millisecond), Duration: 30 * time.Millisecond, Outcome: outcome, Kind: kind}
	}
	results := []outbox.Result{
		{Delivery: outbox.Delivery{Event: event}, Attempt: attempt(outbox.OutcomeDelivered, ""), Delivered: true},
		{Delivery: outbox.Delivery{Event: event, Attempt: 1}, Attempt: attempt(outbox.OutcomeTransient, outbox.KindTimeout), RetryAt: now},
		{Delivery: outbox.Delivery{Event: event, Attempt: 5, Round: 1}, Attempt: attempt(outbox.OutcomeDelivered, ""), Delivered: true},
		{Delivery: outbox.Delivery{Event: event}, Dead: outbox.DeadCancelled},
	}
	store.Finish(ctx, results) // fails: nothing is known, and it is run again
	db.err = nil
	store.Finish(ctx, results)

	counted.Ended(18, 7, outbox.DeadCancelled, now) // by a cancellation

	store.Take(ctx, outbox.NewNodeID(now), []outbox.ShardState{{Shard: 1}, {Shard: 2, Released: true}, {Shard: 3}, {Shard: 4, Released: true}})

	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"waybill_events_accepted_total", nil, 2},
		{"waybill_publish_refused_total", []string{"conflict"}, 2},
		{"waybill_publish_refused_total", []string{"overload"}, 3},
		{"waybill_attempts_total", []string{"", "delivered"}, 2}, // labels are sorted by name
		{"waybill_attempts_total", []string{"timeout", "transient"}, 1},
		{"waybill_attempts_total", []string{"", "permanent"}, 0},
		{"waybill_deliveries_ended_total", []string{"delivered"}, 2},
		{"waybill_deliveries_ended_total", []string{"cancelled"}, 19},
		{"waybill_deliveries_ended_total", []string{"poison"}, 0},
		{"waybill_first_attempt_seconds", nil, 1},
		{"waybill_delivered_seconds", nil, 1},
		{"waybill_attempt_seconds", nil, 3},
		{"waybill_store_failures_total", []string{"record"}, 1},
		{"waybill_store_failures_total", []string{"publish"}, 1},
		{"waybill_batch_size", []string{"record"}, 1},
		{"waybill_shards_taken_total", []string{"released"}, 2},
		{"waybill_shards_taken_total", []string{"dead"}, 1},
	} {
		if got := value(t, registry, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// watched registers everything over a database and a node that a test describes.
func watched(db *database, node dispatch.Status) (*prometheus.Registry, *Books) {
	registry := prometheus.NewRegistry()
	New(registry)
	clock := &outbox.Clock{}
	clock.Set(now, time.Now())
	return registry, Watch(registry, Sources{Store: db, Clock: clock, Node: func() dispatch.Status { return node }, Version: "1.2.3"})
}

func TestWatch_showsWhatWaits(t *testing.T) {
	db := &database{vitals: outbox.Vitals{
		Pending: 7, DeadLetters: 3, OldestPending: now.Add(-time.Hour),
		OldestTransaction: 90 * time.Second, PartitionDaysAhead: 9, Bytes: 1 << 20,
	}}
	registry, _ := watched(db, dispatch.Status{Shards: 256, Open: 2, Probing: 1, RunnableSince: now.Add(-time.Minute)})
	near := func(name string, want float64, labels ...string) {
		t.Helper()
		if got := value(t, registry, name, labels...); math.Abs(got-want) > 5 { // the clock goes on
			t.Errorf("%s%v is %v, want %v", name, labels, got, want)
		}
	}
	near("waybill_runnable_oldest_age_seconds", 60)
	near("waybill_pending_oldest_age_seconds", 3600)
	near("waybill_outbox_oldest_age_seconds", 0)
	near("waybill_deliveries_pending", 7)
	near("waybill_shards_held", 256)
	near("waybill_breakers", 2, "open")
	near("waybill_breakers", 1, "probing")
	near("waybill_store_oldest_transaction_seconds", 90)
	near("waybill_partition_days_ahead", 9)
	near("waybill_store_up", 1)
	if db.asked != 1 {
		t.Errorf("the database was asked %d times within a moment, want once", db.asked)
	}
}

func TestWatch_aDatabaseThatIsAwayHasNoFigures(t *testing.T) {
	registry, _ := watched(&database{err: errors.New("away")}, dispatch.Status{})
	if got := value(t, registry, "waybill_store_up"); got != 0 {
		t.Errorf("waybill_store_up is %v, want 0", got)
	}
	if got := value(t, registry, "waybill_deliveries_pending"); !math.IsNaN(got) {
		t.Errorf("waybill_deliveries_pending is %v though nobody knows", got)
	}
}

func TestBooks_areOutByTheSumOfAllDifferences(t *testing.T) {
	registry, books := watched(&database{}, dispatch.Status{})
	if got := value(t, registry, "waybill_books_imbalance"); !math.IsNaN(got) {
		t.Errorf("the books are out by %v before anybody has looked", got)
	}
	books.Proved(outbox.Report{At: now, Checks: []outbox.Check{
		{Broken: []outbox.Imbalance{{Left: 5, Right: 8}}},
		{Broken: []outbox.Imbalance{{Left: 4, Right: 2}, {Left: 1, Right: 1}}},
	}})
	if got := value(t, registry, "waybill_books_imbalance"); got != 3+2+1 {
		t.Errorf("the books are out by %v, want 6", got)
	}
	books.Proved(outbox.Report{At: now, Checks: []outbox.Check{{}}})
	if got := value(t, registry, "waybill_books_imbalance"); got != 0 {
		t.Errorf("the books are out by %v, want 0", got)
	}
}

// Names and labels are a contract with whoever wrote an alert.
func TestMetrics_followTheConventions(t *testing.T) {
	registry, books := watched(&database{}, dispatch.Status{})
	books.Proved(outbox.Report{At: now})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric == "waybill_partition_days_ahead" {
			continue // a partition is a day: in seconds nobody could set an alert on it
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var names = regexp.MustCompile(`\bwaybill_[a-z_]+\b`)

// Every name is in the documents, and neither they, the alerts nor the dashboard speak of others.
func TestMetrics_areDocumented(t *testing.T) {
	registry, books := watched(&database{}, dispatch.Status{})
	books.Proved(outbox.Report{At: now})
	known := map[string]bool{}
	for _, own := range []string{"../api/metrics.go", "../inbound/metrics.go"} { // those with instruments of their own
		text, err := os.ReadFile(own)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`Name:\s+"(waybill_[a-z_]+)"`).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s measures nothing", own)
		}
		for _, m := range found {
			known[m[1]] = true
		}
	}
	descs := make(chan *prometheus.Desc, 200)
	registry.Describe(descs)
	close(descs)
	fq := regexp.MustCompile(`fqName: "(waybill_[a-z_]+)"`)
	for d := range descs {
		if m := fq.FindStringSubmatch(d.String()); m != nil {
			known[m[1]] = true
		}
	}
	const page = "../../docs/metrics.md"
	for _, file := range []string{page, "../../deploy/prometheus/alerts.yaml", "../../deploy/grafana/waybill.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spoken := map[string]bool{}
		for _, name := range names.FindAllString(string(text), -1) {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base := strings.TrimSuffix(name, suffix); known[base] {
					name = base
				}
			}
			spoken[name] = true
			if !known[name] {
				t.Errorf("%s speaks of %s, which is not measured", file, name)
			}
		}
		for name := range known {
			if file == page && !spoken[name] {
				t.Errorf("%s does not speak of %s", file, name)
			}
		}
	}
}

// Whoever is woken finds an entry for what woke them.
func TestAlerts_haveARunbookEntry(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	entries := regexp.MustCompile(`(?m)^## (Waybill\w+)$`).FindAllStringSubmatch(string(runbook), -1)
	var alerting, explained []string
	for _, m := range alerts {
		alerting = append(alerting, m[1])
		if !strings.Contains(string(rules), "runbook: docs/runbook.md#"+strings.ToLower(m[1])+"\n") {
			t.Errorf("%s does not name its entry", m[1])
		}
	}
	for _, m := range entries {
		explained = append(explained, m[1])
	}
	slices.Sort(alerting)
	slices.Sort(explained)
	if len(alerting) == 0 || !slices.Equal(alerting, explained) {
		t.Errorf("alerts %v, entries %v", alerting, explained)
	}
}

// Where Prometheus' own tool is installed, the alerts do what they say.
func TestAlerts_fireAsPromtoolSays(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: the alerts' expressions are not tried")
		return
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts_test.yaml")
	cmd.Dir = "../../deploy/prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
