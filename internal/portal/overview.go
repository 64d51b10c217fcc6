package portal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// overviewPage is what the operator sees first: who is hurting, and whether it is us.
type overviewPage struct {
	client.Overview
	Sentence string
	Figures  []figure
	Hurting  []hurtingRow
	Charts   []chart
	Waiting  []waitingRow
	Breakers []hurtingRow
	Nodes    []nodeRow
	Shards   []shardPath
	Owned    string // for those who do not see the picture
	Live     []operatorRow
	Periods  []Link
	Period   string
	Empty    bool // nothing was ever published
	Tenants  []client.Tenant
	Curl     string
	Paused   bool
}

// figure is one of the seven at the top.
type figure struct{ Name, Value, About string }

type hurtingRow struct {
	client.Hurting
	Wrong   string
	Since   *time.Time
	Breaker chip
	Day     bars
	Rate    string
	Page    string
	Probe   string
}

type waitingRow struct {
	client.WaitsFor
	Name, About string
	Share       float64 // percent of the widest
}

type nodeRow struct {
	client.Node
	Tone string
	Chip chip
}

// shardPath is the squares of the shards that one node owns.
type shardPath struct {
	Tone string
	Path template.HTMLAttr
}

// overviewPeriods are the spans the overview offers, with the step of its charts.
var overviewPeriods = []struct {
	Name, Words string
	Span        time.Duration
	Bucket      string
}{
	{"1h", "in the last hour", time.Hour, "1m"},
	{"24h", "in 24 hours", 24 * time.Hour, "1h"},
	{"7d", "in 7 days", 7 * 24 * time.Hour, "6h"},
	{"30d", "in 30 days", 30 * 24 * time.Hour, "1d"},
}

func (o *operator) overview(v *Visit) error {
	period := overviewPeriods[1]
	for _, p := range overviewPeriods {
		if p.Name == v.URL.Query().Get("period") {
			period = p
		}
	}
	view, err := Ask[client.Overview](v, client.Path("v1", "overview"), nil)
	if err != nil {
		return err
	}
	stats, err := Ask[client.Stats](v, client.Path("v1", "stats"), url.Values{
		"from": {stampOf(v.Now.Add(-period.Span))}, "to": {stampOf(v.Now.Add(time.Second))}, "bucket": {period.Bucket},
	})
	if err != nil {
		return err
	}
	nodes, err := Ask[client.Nodes](v, client.Path("v1", "nodes"), nil)
	if err != nil {
		return err
	}
	latest, err := Ask[client.Page[client.Delivery]](v, client.Path("v1", "deliveries"), url.Values{"limit": {"10"}})
	if err != nil {
		return err
	}
	page := &overviewPage{
		Overview: view, Period: period.Name, Paused: view.Dispatch.State == "paused",
		Sentence: sentenceOf(&view, nodes.Ownerless), Live: o.rowsOf(latest.Data),
		Figures: figuresOf(&view, &stats, nodes.Data, period.Words),
	}
	for _, p := range overviewPeriods {
		page.Periods = append(page.Periods, Link{URL: "?period=" + p.Name, Name: p.Name})
	}
	for _, h := range view.Hurting {
		row := o.hurtingOf(h)
		page.Hurting = append(page.Hurting, row)
		if h.Health.Breaker != "closed" {
			page.Breakers = append(page.Breakers, row)
		}
	}
	page.Charts = chartsOf(stats)
	page.Waiting = waitingOf(view.Waiting)
	page.Nodes, page.Shards, page.Owned = nodesOf(&nodes)
	if len(latest.Data) == 0 && stats.Totals.Published == 0 {
		page.Empty = true
		tenants, err := Ask[client.Page[client.Tenant]](v, client.Path("v1", "tenants"), url.Values{"limit": {"1"}})
		if err != nil {
			return err
		}
		page.Tenants = tenants.Data
		page.Curl = firstEvent(v, tenants.Data)
	}
	return v.Show(Page{Name: "overview", Title: "Overview", Section: sectionOverview, Refresh: 5, Data: page})
}

// firstEvent is the command that fills an empty dashboard.
func firstEvent(v *Visit, tenants []client.Tenant) string {
	tenant := "acme"
	if len(tenants) > 0 {
		tenant = tenants[0].Key
	}
	base := "http://" + v.Host
	if u := v.base.cfg.PublicURL; u != nil {
		base = strings.TrimSuffix(u.String(), "/")
	}
	publish := "curl " + base + client.Path("v1", "tenants", tenant, "events") + " \\\n  -H \"Authorization: Bearer $WAYBILL_API_KEY\" -H 'Content-Type: application/json' \\\n  -d '{\"type\":\"hello.world\",\"payload\":{\"hi\":true}}'"
	if len(tenants) > 0 {
		return publish
	}
	return "waybill tenants put " + tenant + "\nwaybill endpoints add --tenant " + tenant + " https://hooks.example.com/in\n" + publish
}

// sentenceOf says in one breath who is hurting, and whether anybody waits for us.
func sentenceOf(view *client.Overview, ownerless int) string {
	customers := map[string]bool{}
	for _, h := range view.Hurting {
		customers[h.Tenant] = true
	}
	hurting := "Nobody is hurting."
	switch n := len(customers); {
	case n == 1:
		hurting = "One customer is hurting."
	case n > 1:
		hurting = fmt.Sprintf("%s customers are hurting.", numberWord(n))
	}
	if n := view.OpenBreakers; n > 0 {
		hurting = strings.TrimSuffix(hurting, ".") + ", and " + some(n, "endpoint is cut off until it answers", "endpoints are cut off until they answer") + "."
	}
	late := time.Duration(view.OldestRunnable * float64(time.Millisecond))
	switch {
	case view.Dispatch.State == "paused":
		return hurting + " Sending is stopped for everybody; everything is kept and waits."
	case ownerless > 0:
		return hurting + fmt.Sprintf(" %s of 256 shards have no owner: what is in them waits for us.", grouped(ownerless))
	case late >= 10*time.Second:
		return hurting + " Deliveries wait for us: the oldest that could run is " + spell(late) + " old."
	case late > 0:
		return hurting + " Nobody is waiting for us: the oldest delivery that could run is " + spell(late) + " old."
	}
	return hurting + " Nobody is waiting for us."
}

func numberWord(n int) string {
	words := []string{"No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"}
	if n < len(words) {
		return words[n]
	}
	return grouped(n)
}

func figuresOf(view *client.Overview, stats *client.Stats, nodes []client.Node, words string) []figure {
	perSecond := 0.0
	for _, n := range nodes {
		if !n.Silent {
			perSecond += n.PerSecond
		}
	}
	t := &stats.Totals
	oldest := "nothing waits"
	if at := view.OldestPendingAt; at != nil {
		oldest = "oldest of all " + spell(max(view.At.Sub(*at), 0))
	}
	runnable := "0 s"
	if view.OldestRunnable > 0 {
		runnable = spell(time.Duration(view.OldestRunnable * float64(time.Millisecond)))
	}
	waiting := "nothing is held back"
	if len(view.Waiting) > 0 {
		w := view.Waiting[0]
		waiting = capped(w.Pending, w.Capped) + " of it: " + strings.ToLower(reasonOf(w.Reason).Name)
	}
	return []figure{
		{"Delivering", rate(perSecond), grouped(t.Delivered) + " delivered " + words},
		{"Success rate", percent(t.SuccessRate), "of " + grouped(t.Attempts.Total) + " attempts"},
		{"Attempt p50, p95", pair(t.AttemptMS.P50, t.AttemptMS.P95), "customers’ servers"},
		{"Publish to first attempt", pair(t.FirstAttemptMS.P50, t.FirstAttemptMS.P99), "p50, p99: ours alone"},
		{"Oldest runnable", runnable, oldest},
		{"Waiting", grouped(view.Pending), waiting},
		{"Failed for good", grouped(t.Failed), words + ", " + grouped(view.Dead) + " kept, cancelled ones too"},
	}
}

func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0 /s"
	case perSecond < 10:
		return fmt.Sprintf("%.1f /s", perSecond)
	}
	return grouped(int(math.Round(perSecond))) + " /s"
}

// percent never rounds up to a hundred: 100 % says that nothing failed.
func percent(part *float64) string {
	if part == nil {
		return "–"
	}
	p := math.Floor(*part*10000) / 100
	if *part == 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", p)
}

func pair(a, b *float64) string {
	if a == nil || b == nil {
		return "–"
	}
	return milliseconds(*a) + ", " + milliseconds(*b)
}

func (o *operator) hurtingOf(h client.Hurting) hurtingRow {
	row := hurtingRow{
		Hurting: h, Day: dayOf(h.Day), Rate: percent(h.LastHour.SuccessRate), Since: h.Health.FailingSince,
		Page: o.base.Path("portal", h.Tenant, "endpoints", h.EndpointID), Probe: o.base.Path("portal", h.Tenant, "endpoints", h.EndpointID, "probe"),
	}
	if row.Since == nil {
		row.Since = h.Health.OpenedAt
	}
	if f := h.Health.LastFailure; f != nil {
		row.Wrong, _ = faultParts(f.Message)
	} else {
		row.Wrong = fmt.Sprintf("%s of %s attempts failed in the last hour", grouped(h.LastHour.Attempts.Total-h.LastHour.Attempts.Delivered), grouped(h.LastHour.Attempts.Total))
	}
	switch {
	case h.State == "disabled":
		row.Breaker = chip{"bad", "mute", "Switched off"}
	case h.State == "paused":
		row.Breaker = chip{"mute", "pause", "Paused"}
	case h.Health.Breaker == "open":
		row.Breaker = chip{"bad", "open", "Open"}
	case h.Health.Breaker == "probing":
		row.Breaker = chip{"warn", "retry", "Probing"}
	case h.Health.Rate != nil:
		row.Breaker = chip{"ok", "ok", "Closed, slow start"}
	default:
		row.Breaker = chip{"ok", "ok", "Closed"}
	}
	return row
}

// chartsOf are the four pictures: how much, how well, how fast, and what came of it.
func chartsOf(stats client.Stats) []chart {
	seconds := float64(max(stats.BucketSeconds, 1))
	perSecond := func(of func(client.Bucket) int64) func(client.Bucket) float64 {
		return func(b client.Bucket) float64 { return float64(of(b)) / seconds }
	}
	orNone := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	worst := 1.0
	for _, b := range stats.Data {
		if b.SuccessRate != nil {
			worst = min(worst, *b.SuccessRate)
		}
	}
	floor := 0.0
	for _, f := range []float64{0.9, 0.5} {
		if worst >= f {
			floor = f
			break
		}
	}
	charts := []chart{
		draw("c1", "Attempts /s", stats, 0, rateFigure,
			series{"delivered", "ok", true, perSecond(func(b client.Bucket) int64 { return b.Attempts.Delivered })},
			series{"failed", "bad", false, perSecond(func(b client.Bucket) int64 { return b.Attempts.Transient + b.Attempts.Permanent })}),
		draw("c2", "Success rate", stats, floor, func(p float64) string { return percent(&p) },
			series{"answered 2xx", "ok", false, func(b client.Bucket) float64 { return orNone(b.SuccessRate) }}),
		draw("c3", "Answer time", stats, 0, milliseconds,
			series{"p95", "wait", false, func(b client.Bucket) float64 { return orNone(b.AttemptMS.P95) }},
			series{"p50", "ok", false, func(b client.Bucket) float64 { return orNone(b.AttemptMS.P50) }}),
		draw("c4", "Events", stats, 0, func(n float64) string { return grouped(int(math.Round(n))) },
			series{"published", "wait", true, func(b client.Bucket) float64 { return float64(b.Published) }},
			series{"failed", "bad", false, func(b client.Bucket) float64 { return float64(b.Failed) }}),
	}
	for i := range charts {
		charts[i].Ticks = ticks(stats)
	}
	return charts
}

func rateFigure(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.1:
		return fmt.Sprintf("%.3f", n)
	case n < 10:
		return fmt.Sprintf("%.1f", n)
	}
	return grouped(int(math.Round(n)))
}

// ticks are five moments along the time.
func ticks(stats client.Stats) []chartMark {
	shape := "15:04"
	if stats.To.Sub(stats.From) > 48*time.Hour {
		shape = "2 Jan"
	}
	var marks []chartMark
	for i := range 5 {
		mark := chartMark{At: fmt.Sprintf("%d%%", i*25), Place: "middle"}
		at := stats.From.Add(stats.To.Sub(stats.From) * time.Duration(i) / 4)
		mark.Text = at.UTC().Format(shape)
		switch i {
		case 0:
			mark.At, mark.Place = "0", "start"
		case 4:
			mark.Text, mark.Place = "now", "end"
		}
		marks = append(marks, mark)
	}
	return marks
}

// reason is a reason to wait, for people.
type reason struct{ Name, About string }

var reasons = map[string]reason{
	"breaker":         {"Breaker open", "endpoint does not answer"},
	"backlog":         {"Backlog", "behind others of its endpoint"},
	"retry":           {"Retry", "a planned next try"},
	"paused":          {"Paused", "by the customer or by you"},
	"disabled":        {"Switched off", "nobody was behind the endpoint for days"},
	"tenant_cap":      {"Tenant cap", "tenant at its limit"},
	"endpoint_limit":  {"Endpoint limit", "slow servers"},
	"rate_limit":      {"Rate limit", "429 or a fixed rate"},
	"order":           {"Order", "behind an earlier event"},
	"dispatch_paused": {"Stopped", "the stop switch"},
}

func reasonOf(name string) reason {
	if r, known := reasons[name]; known {
		return r
	}
	return reason{Name: name}
}

func waitingOf(waiting []client.WaitsFor) []waitingRow {
	var rows []waitingRow
	most := 1
	for _, w := range waiting {
		most = max(most, w.Pending)
	}
	for _, w := range waiting {
		r := reasonOf(w.Reason)
		rows = append(rows, waitingRow{WaitsFor: w, Name: r.Name, About: r.About, Share: math.Max(100*float64(w.Pending)/float64(most), 0.5)})
	}
	return rows
}

// nodesOf draws the 256 shards as squares, a colour for each of up to five nodes.
func nodesOf(nodes *client.Nodes) ([]nodeRow, []shardPath, string) {
	var rows []nodeRow
	var words []string
	tone := func(i int) string { return fmt.Sprintf("f%d", 1+i%4) }
	for i, n := range nodes.Data {
		row := nodeRow{Node: n, Tone: tone(i), Chip: chip{"ok", "ok", "Active"}}
		switch {
		case n.Silent:
			row.Chip = chip{"bad", "bad", "Silent"}
		case n.Draining:
			row.Chip = chip{"warn", "wait", "Draining"}
		}
		rows = append(rows, row)
		words = append(words, cmp.Or(n.Name, short(n.ID))+" owns "+grouped(n.Shards))
	}
	squares := map[string]*strings.Builder{}
	var order []string
	for i, owner := range nodes.Shards {
		name := "k-none"
		if owner != nil {
			name = tone(*owner)
		}
		if squares[name] == nil {
			squares[name] = &strings.Builder{}
			order = append(order, name)
		}
		fmt.Fprintf(squares[name], "M%d.08 %d.08h.84v.84h-.84z", i%64, i/64)
	}
	var paths []shardPath
	for _, name := range order {
		paths = append(paths, shardPath{Tone: name, Path: template.HTMLAttr(`d="` + squares[name].String() + `"`)})
	}
	return rows, paths, "256 shards: " + strings.Join(append(words, grouped(nodes.Ownerless)+" without an owner"), ", ")
}

// setDispatch is the stop switch.
func (o *operator) setDispatch(v *Visit) error {
	state, reason := v.PostFormValue("state"), strings.TrimSpace(v.PostFormValue("reason"))
	body, err := json.Marshal(map[string]string{"state": state, "reason": reason})
	if err != nil {
		return err
	}
	if _, err := Tell[client.Dispatch](v.Context(), v.admin(), http.MethodPut, client.Path("v1", "dispatch"), body, ""); err != nil {
		return err
	}
	say := "Sending goes on. All nodes follow within 5 seconds."
	if state == "paused" {
		say = "Sending is stopped on all nodes within 5 seconds. What is under way ends; publishing stays open and everything waits."
	}
	return v.Redirect(v.Path(""), say)
}
