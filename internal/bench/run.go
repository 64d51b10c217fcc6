package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	Scenarios   []string      // names, or none for all
	DatabaseURL string        // a PostgreSQL server to make a database on; "" for a SQLite file
	Duration    time.Duration // of each scenario; default 8 s
	JSON        bool
	Out         io.Writer
}

// Figures are what one scenario measured.
type Figures struct {
	PerSecond float64 `json:"per_second"`
	Ratio     float64 `json:"ratio"` // PerSecond over R0
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	RSS       float64 `json:"rss_mib"` // the largest server's largest

	// What a scenario compares with, where it compares.
	QuietP99  float64 `json:"quiet_p99_ms,omitzero"`       // the same customers undisturbed
	VsQuiet   float64 `json:"p99_vs_quiet,omitzero"`       // P99 over QuietP99
	Beside    float64 `json:"beside_per_second,omitzero"`  // what the disturber published meanwhile
	Without   float64 `json:"without_per_second,omitzero"` // the same without the burden
	VsWithout float64 `json:"vs_without,omitzero"`         // PerSecond over Without
	Rows      int64   `json:"pending_rows,omitzero"`       // of the burden
	TooMany   float64 `json:"share_429,omitzero"`          // of all requests

	// What people wait for, where a scenario looks at lists and pages.
	P95        float64 `json:"p95_ms,omitzero"`
	Slowest    string  `json:"slowest,omitzero"` // the list or page with the largest 95th percentile
	SlowestP95 float64 `json:"slowest_p95_ms,omitzero"`
}

// compared says what the figures are compared with, for people.
func (f Figures) compared() string {
	switch {
	case f.Slowest != "":
		return fmt.Sprintf("p95 %.1f ms over %d attempts; the slowest is %q with p95 %.1f ms", f.P95, f.Rows, f.Slowest, f.SlowestP95)
	case f.VsQuiet > 0:
		return fmt.Sprintf("p99 is %.2f × the quiet %.1f ms, beside %.0f/s", f.VsQuiet, f.QuietP99, f.Beside)
	case f.Rows > 0:
		return fmt.Sprintf("%.2f of the %.0f/s without %d pending rows", f.VsWithout, f.Without, f.Rows)
	case f.VsWithout > 0:
		return fmt.Sprintf("%.2f of the %.0f/s without", f.VsWithout, f.Without)
	case f.TooMany > 0:
		return fmt.Sprintf("%.2f %% of the requests were answered 429", 100*f.TooMany)
	}
	return ""
}

// Report is the outcome of a run.
type Report struct {
	R0        float64            `json:"r0"`
	Scenarios map[string]Figures `json:"scenarios"`
}

// rawFor is long enough to measure R0, however long the scenarios take.
const rawFor = 10 * time.Second

// scenario measures one thing on a running rig.
type scenario struct {
	name string
	help string
	run  func(ctx context.Context, r *rig) (map[string]Figures, error)
}

var scenarios = []scenario{
	{"raw", "R0: signed POSTs to the sink, storing nothing", nil},
	{"throughput-batch", "events published in batches, durable, delivered and recorded", throughputBatch},
	{"throughput-single", "one POST an event", throughputSingle},
	{"inbound", "webhooks that arrive at sources, one POST each", inbound},
	{"paced", "116/s (10 million a day) and 1,000/s: publish to arrival", paced},
	{"noisy", "20 tenants beside one whose server hangs, with 1,000 events waiting", noisy},
	{"noisy-publish", "20 tenants beside one that publishes a million events", noisyPublish},
	{"backlog", "throughput beside a dead endpoint's pending rows", backlog},
	{"recovery", "a server that takes 50 requests a second comes back to a backlog", recovery},
	{"held", "throughput by SQL while somebody keeps a snapshot open (PostgreSQL)", held},
	{"lists", "every list, filter and page over as many rows as the time allows, up to 10 million (PostgreSQL)", lists},
	{"nodes", "throughput with one, two and three servers on one database (PostgreSQL)", nodes},
}

// Names returns the scenarios there are, with what each measures.
func Names() map[string]string {
	names := map[string]string{}
	for _, s := range scenarios {
		names[s.name] = s.help
	}
	return names
}

// Run measures R0, then each scenario against a server of its own, and writes the report.
func Run(ctx context.Context, o Options) error {
	if o.Duration == 0 {
		o.Duration = 8 * time.Second
	}
	chosen, err := choose(o.Scenarios)
	if err != nil {
		return err
	}
	s, err := startSink(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	report := Report{Scenarios: map[string]Figures{}}
	r0, err := measureRaw(ctx, s, min(o.Duration, rawFor))
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	report.R0 = r0.PerSecond
	report.Scenarios["raw"] = r0
	for _, sc := range chosen {
		if sc.run == nil {
			continue // measured already
		}
		figures, err := onRig(ctx, s, o, sc)
		if err != nil {
			// What was measured before is worth its time.
			return errors.Join(fmt.Errorf("%s: %w", sc.name, err), report.write(o.Out, o.JSON))
		}
		for name, f := range figures {
			f.Ratio = f.PerSecond / report.R0
			report.Scenarios[name] = f
		}
	}
	return report.write(o.Out, o.JSON)
}

func choose(names []string) ([]scenario, error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	var chosen []scenario
	for _, name := range names {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(Names())), ", "))
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

func (r Report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	fmt.Fprintf(w, "R0 = %.0f signed POSTs a second\n\n", r.R0)
	fmt.Fprintf(w, "%-20s %12s %8s %10s %10s %9s\n", "scenario", "per second", "ratio", "p50 ms", "p99 ms", "RSS MiB")
	for _, name := range slices.Sorted(maps.Keys(r.Scenarios)) {
		f := r.Scenarios[name]
		fmt.Fprintf(w, "%-20s %12.0f %8.3f %10.1f %10.1f %9.0f  %s\n", name, f.PerSecond, f.Ratio, f.P50, f.P99, f.RSS, f.compared())
	}
	return nil
}
