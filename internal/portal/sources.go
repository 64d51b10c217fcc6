package portal

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

const sectionSources = "Sources"

// serveSources registers the dashboard's pages about other people's webhooks.
func (o *operator) serveSources() {
	b := o.base
	act := func(do func(*Visit) error) func(*Visit) error { return o.may("admin", "change sources", do) }
	const source = "/sources/{source}"
	b.Get("/sources", o, o.sources)
	b.Get("/sources/new", o, act(o.newSource))
	b.Post("/sources", o, act(o.addSource))
	b.Get(source, o, o.source)
	b.Get(source+"/edit", o, act(o.editSource))
	b.Post(source+"/edit", o, act(o.changeSource))
	b.Post(source+"/pause", o, act(func(v *Visit) error {
		return o.setSource(v, "paused", "Paused. Whoever sends is told to come back later, and nothing is stored.")
	}))
	b.Post(source+"/resume", o, act(func(v *Visit) error { return o.setSource(v, "active", "Resumed. Requests are taken again.") }))
	b.Post(source+"/secrets", o, act(o.addSourceSecret))
	b.Post(source+"/secrets/{secret}/end", o, act(o.endSourceSecret))
	b.Get(source+"/remove", o, act(o.askRemoveSource))
	b.Post(source+"/remove", o, act(o.removeSource))
	b.Get(source+"/requests/{in}/body", o, o.requestBody)
	b.Post(source+"/requests/{in}/release", o, act(o.releaseRequest))
}

// sourceRow is a source in the list.
type sourceRow struct {
	client.Source
	Chip             chip
	Page, TenantPage string
	Last             *requestRow // what arrived last; nil: nothing was kept
}

func sourceChip(s client.Source, now time.Time) chip {
	live := 0
	for _, secret := range s.Secrets {
		if secret.ExpiresAt == nil || secret.ExpiresAt.After(now) {
			live++
		}
	}
	switch {
	case s.Tenant == "":
		return chip{"bad", "warn", "No tenant"}
	case s.State == "paused":
		return chip{"mute", "pause", "Paused"}
	case live == 0:
		return chip{"bad", "key", "No secret"}
	}
	return chip{"ok", "ok", "Taking"}
}

// requestRow is a request to a source, in a list.
type requestRow struct {
	client.InboundRequest
	Time  time.Time
	Chip  chip
	Event string // the address of the event it is or repeats
	Kept  *body  // of a quarantined one
	// Release is where a quarantined one is made an event after all; "" where it is one.
	Release string
}

var outcomes = []struct {
	Word, Name string
	Chip       chip
}{
	{"accepted", "Accepted", chip{"ok", "ok", "Accepted"}},
	{"duplicate", "Repeats", chip{"mute", "retry", "Repeat"}},
	{"rejected", "Refused", chip{"bad", "bad", "Refused"}},
	{"quarantined", "Quarantined", chip{"warn", "warn", "Quarantined"}},
}

// maxListedBody is the largest body that the API's lists show.
const maxListedBody = 16 << 10

// requestRows shows requests; all quarantined bodies of a page share a budget.
func (o *operator) requestRows(source client.Source, requests []client.InboundRequest) []requestRow {
	rows := make([]requestRow, len(requests))
	budget := detailBudget
	for i, r := range requests {
		row := requestRow{InboundRequest: r}
		row.Time, _ = time.Parse(time.RFC3339Nano, r.At) // a time of the API's; none is shown where it is none
		for _, outcome := range outcomes {
			if outcome.Word == r.Outcome {
				row.Chip = outcome.Chip
			}
		}
		if r.EventID != "" {
			row.Event = withQuery(o.base.Path("search"), url.Values{"q": {r.EventID}})
		}
		if r.Outcome == "quarantined" {
			// The event has the body of a released one. Lists leave large ones out; a small one that is
			// not there was erased.
			erased := len(r.Body) == 0 && r.Bytes > 0 && r.Bytes <= maxListedBody
			if r.ReleasedEventID == "" && !erased {
				row.Release = o.base.Path("sources", source.Name, "requests", r.ID, "release")
			} else if r.ReleasedEventID != "" {
				row.EventID, row.Event = r.ReleasedEventID, withQuery(o.base.Path("search"), url.Values{"q": {r.ReleasedEventID}})
			}
			if row.Release != "" {
				row.Kept = showBytes(r.Body, min(budget, 4<<10))
				if len(r.Body) < r.Bytes {
					row.Kept.Bytes, row.Kept.Cut = r.Bytes, true
				}
				row.Kept.URL = o.base.Path("sources", source.Name, "requests", r.ID, "body")
				budget -= len(row.Kept.Text)
			}
		}
		rows[i] = row
	}
	return rows
}

func (o *operator) sources(v *Visit) error {
	query := url.Values{"limit": {"25"}}
	if cursor := v.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	page, err := Ask[client.Page[client.Source]](v, client.Path("v1", "sources"), query)
	if err != nil {
		return err
	}
	var rows []sourceRow
	for _, s := range page.Data {
		row := sourceRow{Source: s, Chip: sourceChip(s, v.Now), Page: v.Path("sources", s.Name), TenantPage: v.Path("tenants", s.Tenant)}
		last, err := Ask[client.Page[client.InboundRequest]](v, client.Path("v1", "sources", s.Name, "requests"), url.Values{"limit": {"1"}})
		if refused, is := errors.AsType[*client.Error](err); err != nil && (!is || refused.Status != http.StatusNotFound) {
			return err // one that was removed a moment ago has nothing to show
		}
		if len(last.Data) > 0 {
			row.Last = &o.requestRows(s, last.Data)[0]
		}
		rows = append(rows, row)
	}
	data := map[string]any{"Rows": rows, "Older": "", "First": "", "Shown": some(len(rows), "source", "sources")}
	if page.NextCursor != nil {
		data["Older"] = withQuery(v.Path("sources"), url.Values{"cursor": {*page.NextCursor}})
	}
	if query.Has("cursor") {
		data["First"] = v.Path("sources")
	}
	return v.Show(Page{Name: "sources", Title: "Sources", Section: sectionSources, Data: data})
}

// sourcePage is one source: how it is set up and what arrived.
type sourcePage struct {
	client.Source
	Chip       chip
	Here       string // the address of this page
	Address    string // what the provider is given
	TenantPage string
	Tabs       []stateTab
	Rows       []requestRow
	Shown      string
	First      string
	Older      string
	Bad        string // what is wrong with the filter
	Overlaps   []struct{ Seconds, Name string }
	Fault      string // of the secret that was typed
}

// secretOverlaps are when the secrets before a new one end.
var secretOverlaps = []struct{ Seconds, Name string }{
	{"86400", "in 24 hours"}, {"3600", "in 1 hour"}, {"604800", "in 7 days"}, {"", "not by themselves"}, {"0", "at once (they leaked)"},
}

func (o *operator) source(v *Visit) error { return o.showSource(v, "", http.StatusOK) }

func (o *operator) showSource(v *Visit, fault string, status int) error {
	name := v.PathValue("source")
	s, err := Ask[client.Source](v, client.Path("v1", "sources", name), nil)
	if err != nil {
		return err
	}
	here := v.Path("sources", name)
	filter, isShort := shortFilter(v.URL.Query(), []string{"outcome", "cursor"})
	if !isShort {
		return v.Redirect(withQuery(here, filter), "")
	}
	query := url.Values{"limit": {"25"}}
	for name, values := range filter {
		query[name] = values
	}
	arrived, err := Ask[client.Page[client.InboundRequest]](v, client.Path("v1", "sources", name, "requests"), query)
	bad, err := refusedFilter(err)
	if err != nil {
		return err
	}
	if bad != "" {
		status = http.StatusUnprocessableEntity
	}
	page := &sourcePage{
		Source: s, Chip: sourceChip(s, v.Now), Here: here, Address: v.outside(s.Path), TenantPage: v.Path("tenants", s.Tenant),
		Rows: o.requestRows(s, arrived.Data), Shown: some(len(arrived.Data), "request", "requests"), Bad: bad, Overlaps: secretOverlaps, Fault: fault,
	}
	with := deliveryList{Filter: filter}
	page.Tabs = append(page.Tabs, stateTab{Name: "All", URL: with.with("outcome", ""), Current: filter.Get("outcome") == ""})
	for _, outcome := range outcomes {
		page.Tabs = append(page.Tabs, stateTab{Name: outcome.Name, URL: with.with("outcome", outcome.Word), Current: filter.Get("outcome") == outcome.Word})
	}
	if arrived.NextCursor != nil {
		page.Older = with.older(*arrived.NextCursor, "")
	}
	if filter.Get("cursor") != "" {
		page.First = with.with("cursor", "")
	}
	refresh := 0
	if filter.Get("cursor") == "" && bad == "" {
		refresh = 5
	}
	return v.Show(Page{Name: "source", Title: s.Name, Section: sectionSources, Status: status, Refresh: refresh, Data: page})
}

// outside is the whole address of a path of this server, as others reach it.
func (v *Visit) outside(path string) string {
	if u := v.base.cfg.PublicURL; u != nil {
		return strings.TrimSuffix(u.String(), "/") + path
	}
	scheme := "http://"
	if v.TLS != nil {
		scheme = "https://"
	}
	return scheme + v.Host + path
}

// requestBody is the body of a quarantined request, byte for byte. It is a stranger's: no browser
// may take it for a page.
func (o *operator) requestBody(v *Visit) error {
	name, id := v.PathValue("source"), v.PathValue("in")
	r, err := Ask[client.InboundRequest](v, client.Path("v1", "sources", name, "requests", id), nil)
	if err != nil {
		return err
	}
	if r.Outcome != "quarantined" || len(r.Body) < r.Bytes { // released or erased
		return errNoPage
	}
	v.download(r.Body, id+".body")
	return nil
}

// releaseRequest makes an event of a quarantined request.
func (o *operator) releaseRequest(v *Visit) error {
	name, id := v.PathValue("source"), v.PathValue("in")
	released, err := Tell[struct {
		EventID string `json:"event_id"`
	}](v.Context(), v.write(), http.MethodPost, client.Path("v1", "sources", name, "requests", id, "release"), nil, "")
	if err != nil {
		return err
	}
	return v.Redirect(v.Path("sources", name), "Released as the event "+released.EventID+".")
}

// setSource changes a source's state and says what that means.
func (o *operator) setSource(v *Visit, state, say string) error {
	name := v.PathValue("source")
	if _, err := Tell[client.Source](v.Context(), v.write(), http.MethodPut, client.Path("v1", "sources", name), fmt.Appendf(nil, `{"state":%q}`, state), ""); err != nil {
		return err
	}
	return v.Redirect(v.Path("sources", name), say)
}

func (o *operator) askRemoveSource(v *Visit) error {
	s, err := Ask[client.Source](v, client.Path("v1", "sources", v.PathValue("source")), nil)
	if err != nil {
		return err
	}
	return v.Show(Page{Name: "source-remove", Title: "Remove a source", Section: sectionSources, Data: s})
}

func (o *operator) removeSource(v *Visit) error {
	if _, err := v.write().Do(v.Context(), client.Request{Method: http.MethodDelete, Path: client.Path("v1", "sources", v.PathValue("source"))}); err != nil {
		return err
	}
	return v.Redirect(v.Path("sources"), "The source is removed. Its events stay, and what it has seen is remembered.")
}
