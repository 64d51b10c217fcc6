package portal

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// stateTab is one of the links above a list.
type stateTab struct {
	Name, URL, Count string
	Current          bool
}

// deliveryGroup is rows of one state, with what that state means to the reader.
type deliveryGroup struct {
	State, Name, About string
	Rows               []deliveryRow
	All                string // the address of all of them; "": these are all
	Count              string
}

// deliveryRow is a delivery in a list.
type deliveryRow struct {
	client.Delivery
	Chip   chip
	Time   time.Time // of the last attempt, else of acceptance
	Fault  string    // short; "" where there is none
	Answer string    // the status, or in words why there was none
	Next   *time.Time
	URL    string
}

// deliveryList is the page of deliveries.
type deliveryList struct {
	Groups    []deliveryGroup
	Tabs      []stateTab
	Filter    url.Values
	Filtered  bool // by more than the state
	Endpoints []client.Endpoint
	Types     []string
	Periods   []struct{ Value, Name string }
	Banner    *outage
	Shown     string
	First     string // the address of the first page; "": this is it
	Older     string
	Bad       string // what is wrong with the filter
	Empty     bool
	Act       string // the address rows are replayed at
	EmptyEP   *client.Endpoint
}

// How many rows the page of all states shows of each.
const (
	showFailed  = 10
	showWaiting = 10
	showDone    = 20
	pageRows    = 50
)

var periods = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}

var periodNames = []struct{ Value, Name string }{{"", "All kept"}, {"1h", "hour"}, {"24h", "24 hours"}, {"7d", "7 days"}, {"30d", "30 days"}}

var groups = []deliveryGroup{
	{State: "dead", Name: "Failed", About: "will not be tried again until you replay them"},
	{State: "pending", Name: "Waiting", About: "sent by themselves, nothing to do"},
	{State: "delivered", Name: "Delivered", About: "your server answered 2xx"},
	{State: "cancelled", Name: "Cancelled", About: "called off before they were sent"},
}

// filterNames are the parameters the page knows; the API has them under the same names, but for
// the period and the id.
var filterNames = []string{"state", "endpoint_id", "event_type", "status_code", "period", "id", "from", "to", "kind", "cursor"}

func (c *customer) deliveries(v *Visit) error {
	filter, short := shortFilter(v.URL.Query(), filterNames)
	if !short {
		return v.Redirect(withQuery(v.at("deliveries"), filter), "")
	}
	if id := strings.TrimSpace(filter.Get("id")); id != "" {
		return c.goTo(v, id)
	}
	list := &deliveryList{Filter: filter, Act: v.at("replay"), Periods: periodNames}
	for name := range filter {
		list.Filtered = list.Filtered || name != "state" && name != "cursor"
	}
	endpoints, err := c.choices(v)
	if err != nil {
		return err
	}
	list.Endpoints = endpoints
	if list.Bad, err = refusedFilter(c.fillDeliveries(v, list)); err != nil {
		return err
	}
	if list.Bad != "" {
		list.Groups = nil
	}
	list.Banner = c.banner(v, endpoints)
	list.Types = typesOf(list.Groups, filter.Get("event_type"))
	list.Empty = len(list.Groups) == 0 && !list.Filtered && filter.Get("state") == "" && list.Bad == ""
	if list.Empty && len(list.Endpoints) > 0 {
		list.EmptyEP = &list.Endpoints[0]
	}
	return v.Show(Page{Name: "deliveries", Title: "Deliveries", Section: sectionDeliveries, Status: listStatus(list.Bad), Data: list})
}

// goTo leads to what an id names.
func (c *customer) goTo(v *Visit, id string) error {
	switch {
	case strings.HasPrefix(id, "dlv_"):
		return v.Redirect(v.at("deliveries", id), "")
	case strings.HasPrefix(id, "evt_"):
		return v.Redirect(v.at("events", id), "")
	case strings.HasPrefix(id, "ep_"):
		return v.Redirect(v.at("endpoints", id), "")
	}
	return &Trouble{Status: http.StatusNotFound, Title: "That is no id we know",
		Text: "Ids begin with dlv_ for a delivery, evt_ for an event or ep_ for an endpoint.", Next: &Link{v.at("deliveries"), "All deliveries"}}
}

// fillDeliveries reads the rows: one state by pages, or the first rows of each, failed first.
func (c *customer) fillDeliveries(v *Visit, list *deliveryList) error {
	counts, err := c.counts(v, list.Filtered)
	if err != nil {
		return err
	}
	state := list.Filter.Get("state")
	list.Tabs = append(list.Tabs, stateTab{Name: "All", URL: list.with("state", ""), Current: state == ""})
	for _, g := range groups {
		list.Tabs = append(list.Tabs, stateTab{Name: g.Name, URL: list.with("state", g.State), Current: state == g.State, Count: counts[g.State]})
	}
	query, err := apiFilter(list.Filter, v.Now)
	if err != nil {
		return err
	}
	if state != "" {
		query.Set("limit", strconv.Itoa(pageRows))
		page, err := Ask[client.Page[client.Delivery]](v, v.tenantPath("deliveries"), query)
		if err != nil {
			return err
		}
		for _, g := range groups {
			if g.State == state && len(page.Data) > 0 {
				g.Rows, g.Count = rowsOf(v, page.Data), counts[g.State]
				list.Groups = append(list.Groups, g)
			}
		}
		list.Shown = some(len(page.Data), "row", "rows")
		if page.NextCursor != nil {
			list.Older = list.older(*page.NextCursor, query.Get("from"))
		}
		if list.Filter.Get("cursor") != "" {
			list.First = list.with("cursor", "")
		}
		return nil
	}
	rows := 0
	for _, g := range groups {
		limit := map[string]int{"dead": showFailed, "pending": showWaiting}[g.State]
		if limit == 0 {
			limit = showDone
		}
		if g.State == "cancelled" {
			continue // nobody needs to act on them; their tab has them
		}
		query.Set("state", g.State)
		query.Set("limit", strconv.Itoa(limit))
		query.Del("cursor")
		page, err := Ask[client.Page[client.Delivery]](v, v.tenantPath("deliveries"), query)
		if err != nil {
			return err
		}
		if len(page.Data) == 0 {
			continue
		}
		g.Rows, g.Count = rowsOf(v, page.Data), counts[g.State]
		if page.NextCursor != nil {
			g.All = list.with("state", g.State)
		}
		rows += len(g.Rows)
		list.Groups = append(list.Groups, g)
	}
	list.Shown = some(rows, "row", "rows")
	return nil
}

// with is the address of the list with one filter changed. A cursor is of one filter alone.
func (l *deliveryList) with(name, value string) string {
	next := url.Values{}
	for n, values := range l.Filter {
		if n != name && n != "cursor" {
			next[n] = values
		}
	}
	if value != "" {
		next.Set(name, value)
	}
	return withQuery("", next)
}

// older is the address of the next page. A cursor is good for one filter, so what was "the last
// hour" when the list began stays the time that was.
func (l *deliveryList) older(cursor, from string) string {
	next := url.Values{}
	for n, values := range l.Filter {
		next[n] = values
	}
	if next.Has("period") {
		next.Del("period")
		next.Set("from", from)
	}
	next.Set("cursor", cursor)
	return withQuery("", next)
}

// withQuery adds a query to a path. "?" alone would be an address too, the same one.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		if path == "" {
			return "?"
		}
		return path
	}
	return path + "?" + query.Encode()
}

// shortFilter keeps the known parameters that say something, and reports whether the address was
// short already.
func shortFilter(query url.Values, known []string) (url.Values, bool) {
	out, short := url.Values{}, true
	for _, name := range known {
		values, there := query[name]
		if !there {
			continue
		}
		if len(values) == 1 && values[0] != "" {
			out.Set(name, values[0])
			continue
		}
		short = false
		if len(values) > 1 {
			out.Set(name, values[len(values)-1])
		}
	}
	return out, short
}

// apiFilter translates the page's parameters into the API's.
func apiFilter(filter url.Values, now time.Time) (url.Values, error) {
	query := url.Values{}
	for name, values := range filter {
		switch name {
		case "period":
			length, known := periods[values[0]]
			if !known {
				return nil, &client.Error{Status: http.StatusUnprocessableEntity, Detail: "period: want 1h, 24h, 7d or 30d"}
			}
			query.Set("from", now.Add(-length).Truncate(time.Minute).UTC().Format(time.RFC3339))
		case "id":
		case "from", "to":
			at, err := readTime(values[0], nil)
			if err != nil {
				return nil, &client.Error{Status: http.StatusUnprocessableEntity, Detail: name + ": " + err.Error()}
			}
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		default:
			query[name] = values
		}
	}
	return query, nil
}

func rowsOf(v *Visit, deliveries []client.Delivery) []deliveryRow {
	rows := make([]deliveryRow, len(deliveries))
	for i, d := range deliveries {
		rows[i] = rowOf(v, d)
	}
	return rows
}

func rowOf(v *Visit, d client.Delivery) deliveryRow {
	row := deliveryRow{Delivery: d, Chip: chipOf(d), Time: d.CreatedAt, URL: v.at("deliveries", d.ID)}
	if a := d.LastAttempt; a != nil {
		row.Time, row.Answer = a.At, answerWord(a.StatusCode, a.Kind)
		if a.Kind != "" && d.State != "delivered" {
			row.Fault, _ = faultParts(a.Message)
		}
	}
	switch {
	case d.Dead != nil && d.Dead.Message != "":
		row.Fault, _ = faultParts(d.Dead.Message)
	case d.Waiting != nil && d.Waiting.Reason != "retry":
		row.Fault = waitTitles[d.Waiting.Reason]
	}
	if w := d.Waiting; w != nil {
		row.Next = w.ETA
		if row.Next == nil {
			row.Next = w.Until
		}
		if row.Next == nil && w.Reason == "retry" {
			row.Next = d.NextAttemptAt
		}
	}
	return row
}

func chipOf(d client.Delivery) chip {
	reason := ""
	if d.Waiting != nil {
		reason = d.Waiting.Reason
	}
	return stateChip(d.State, reason, d.AttemptCount > 0)
}

// answerWord is an attempt's answer in a narrow column.
func answerWord(status int, kind string) string {
	if status != 0 {
		return strconv.Itoa(status)
	}
	switch kind {
	case "timeout":
		return "timeout"
	case "refused", "reset":
		return kind
	case "dns_not_found", "dns_temporary":
		return "DNS error"
	case "tls_handshake", "tls_certificate", "tls_client_certificate":
		return "TLS error"
	case "":
		return ""
	}
	return "none"
}

// faultParts splits what the API says of a fault at its middle: what happened, and what to do.
func faultParts(message string) (what, todo string) {
	what, todo, _ = strings.Cut(strings.TrimSuffix(message, "."), "; ")
	return what, todo
}

// typesOf are the event types the filter offers: those on the page, and the chosen one.
func typesOf(groups []deliveryGroup, chosen string) []string {
	var types []string
	seen := map[string]bool{"": true}
	add := func(s string) {
		if !seen[s] {
			seen[s] = true
			types = append(types, s)
		}
	}
	add(chosen)
	for _, g := range groups {
		for _, r := range g.Rows {
			add(r.EventType)
		}
	}
	return types
}

// replay replays the chosen deliveries: one button's, or those selected. Each has a key made of
// the form's, so that sending the form twice replays each once.
func (c *customer) replay(v *Visit) error {
	each := func(id string) string { return v.tenantPath("deliveries", id, "replay") }
	return replayEach(v, each, &Link{v.at("recover"), "Recover a range"})
}

// maxSelected is what can be selected on one page at most.
const maxSelected = 250
