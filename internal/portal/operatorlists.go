package portal

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/client"
)

// admin calls the API with what an operator's acts need.
func (v *Visit) admin() *client.Client { return v.As(api.ScopeAdmin) }

// operatorRow is a delivery of whichever tenant.
type operatorRow struct {
	deliveryRow
	TenantPage string
}

// rowsOf shows deliveries whose own pages are those of their tenants.
func (o *operator) rowsOf(deliveries []client.Delivery) []operatorRow {
	rows := make([]operatorRow, len(deliveries))
	for i, d := range deliveries {
		of := &Visit{base: o.base, Visitor: Visitor{Tenant: d.Tenant}}
		row := rowOf(of, d)
		row.Fault, _, _ = strings.Cut(row.Fault, "; ") // the rest is on its page
		rows[i] = operatorRow{row, o.base.Path("tenants", d.Tenant)}
	}
	return rows
}

// operatorList is a list over all tenants, or one of them.
type operatorList struct {
	Rows     []operatorRow
	Tabs     []stateTab
	Filter   url.Values
	Periods  []struct{ Value, Name string }
	Kinds    []string
	Filtered bool
	Shown    string
	First    string
	Older    string
	Bad      string
}

// operatorFilters are the parameters of the deliveries' page; the API has them under the same
// names, but for the period.
var operatorFilters = []string{"state", "tenant", "endpoint_id", "event_type", "status_code", "kind", "period", "from", "to", "cursor"}

var faultKinds = []string{
	"timeout", "refused", "reset", "http_status", "dns_not_found", "dns_temporary", "tls_certificate", "tls_handshake", "redirect", "protocol", "egress_denied", "config",
}

func (o *operator) deliveries(v *Visit) error {
	filter, isShort := shortFilter(v.URL.Query(), operatorFilters)
	if !isShort {
		return v.Redirect(withQuery(v.Path("deliveries"), filter), "")
	}
	list := &operatorList{Filter: filter, Periods: periodNames, Kinds: faultKinds}
	with := deliveryList{Filter: filter}
	for _, tab := range []struct{ state, name string }{{"", "All"}, {"dead", "Failed"}, {"pending", "Waiting"}, {"delivered", "Delivered"}, {"cancelled", "Cancelled"}} {
		list.Tabs = append(list.Tabs, stateTab{Name: tab.name, URL: with.with("state", tab.state), Current: filter.Get("state") == tab.state})
	}
	for name := range filter {
		list.Filtered = list.Filtered || name != "state" && name != "cursor"
	}
	query, err := apiFilter(filter, v.Now)
	if err == nil {
		query.Set("limit", "50")
		var page client.Page[client.Delivery]
		page, err = Ask[client.Page[client.Delivery]](v, client.Path("v1", "deliveries"), query)
		list.Rows, list.Shown = o.rowsOf(page.Data), some(len(page.Data), "row", "rows")
		if page.NextCursor != nil {
			list.Older = with.older(*page.NextCursor, query.Get("from"))
		}
	}
	if list.Bad, err = refusedFilter(err); err != nil {
		return err
	}
	if filter.Get("cursor") != "" {
		list.First = with.with("cursor", "")
	}
	return v.Show(Page{Name: "operator-deliveries", Title: "Deliveries", Section: sectionDeliveries, Status: listStatus(list.Bad), Data: list})
}

// refusedFilter makes of a filter that the API does not take a sentence for the page; other errors
// stay what they are.
func refusedFilter(err error) (string, error) {
	refused, is := errors.AsType[*client.Error](err)
	if !is || refused.Status != http.StatusUnprocessableEntity && refused.Status != http.StatusBadRequest && refused.Status != http.StatusNotFound {
		return "", err
	}
	return sentence(refused.Detail), nil
}

// listStatus is the status of a list whose filter was taken, or not.
func listStatus(bad string) int {
	if bad != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// replay replays the chosen deliveries, whosever they are.
func (o *operator) replay(v *Visit) error {
	each := func(id string) string { return client.Path("v1", "deliveries", id, "replay") }
	return replayEach(v, each, &Link{v.Path("tenants"), "Choose a tenant to recover a range of"})
}

// replayEach replays the deliveries chosen on a page: one button's, or those selected. Each has a
// key made of the form's, so that sending the form twice replays each once.
func replayEach(v *Visit, path func(id string) string, instead *Link) error {
	ids := v.PostForm["delivery"]
	if len(ids) == 0 {
		ids = v.PostForm["delivery_ids"]
	}
	back := v.back()
	if len(ids) == 0 {
		return v.Redirect(back, "Nothing was selected, so nothing was replayed.")
	}
	if len(ids) > maxSelected {
		return &Trouble{Status: http.StatusUnprocessableEntity, Title: "That is too many to select", Text: "Nothing was done. Recover replays a whole range.", Next: instead}
	}
	key := v.Key()
	var done int
	var refused error
	for _, id := range ids {
		each := ""
		if key != "" {
			each = key + "." + id
		}
		if _, err := Tell[client.Replayed](v.Context(), v.write(), http.MethodPost, path(id), nil, each); err != nil {
			if r, is := errors.AsType[*client.Error](err); !is || r.Status >= http.StatusInternalServerError {
				return err
			}
			refused = err
			continue
		}
		done++
	}
	if done == 0 {
		return refused
	}
	say := "The replay is under way. Its attempt appears here within moments."
	if len(ids) > 1 {
		say = some(done, "replay is", "replays are") + " under way."
		if left := len(ids) - done; left > 0 {
			say += " " + some(left, "delivery could not be replayed: its", "deliveries could not be replayed: their") + " endpoint was removed or the body is gone."
		}
	}
	return v.Redirect(back, say)
}

// operatorEndpoint is an endpoint of whichever tenant.
type operatorEndpoint struct {
	client.Endpoint
	Chip             chip
	Page, TenantPage string
}

func (o *operator) endpoints(v *Visit) error {
	filter, isShort := shortFilter(v.URL.Query(), []string{"state", "tenant", "event_type", "cursor"})
	if !isShort {
		return v.Redirect(withQuery(v.Path("endpoints"), filter), "")
	}
	query := url.Values{"limit": {"50"}}
	for name, values := range filter {
		query[name] = values
	}
	page, err := Ask[client.Page[client.Endpoint]](v, client.Path("v1", "endpoints"), query)
	bad, err := refusedFilter(err)
	if err != nil {
		return err
	}
	rows := []operatorEndpoint{}
	for _, e := range page.Data {
		rows = append(rows, operatorEndpoint{e, endpointChip(e), v.Path("portal", e.Tenant, "endpoints", e.ID), v.Path("tenants", e.Tenant)})
	}
	with := deliveryList{Filter: filter}
	data := map[string]any{"Rows": rows, "Filter": filter, "Bad": bad, "Shown": some(len(rows), "endpoint", "endpoints"), "First": "", "Older": "", "Filtered": len(filter) > 0}
	if page.NextCursor != nil {
		data["Older"] = with.older(*page.NextCursor, "")
	}
	if filter.Get("cursor") != "" {
		data["First"] = with.with("cursor", "")
	}
	return v.Show(Page{Name: "operator-endpoints", Title: "Endpoints", Section: sectionEndpoints, Status: listStatus(bad), Data: data})
}

// operatorEvent is an event of whichever tenant.
type operatorEvent struct {
	client.Event
	Page, TenantPage string
	Chip             chip
}

func (o *operator) events(v *Visit) error {
	filter, isShort := shortFilter(v.URL.Query(), []string{"state", "tenant", "event_type", "cursor"})
	if !isShort {
		return v.Redirect(withQuery(v.Path("events"), filter), "")
	}
	query := url.Values{"limit": {"50"}}
	for name, values := range filter {
		query[name] = values
	}
	page, err := Ask[client.Page[client.Event]](v, client.Path("v1", "events"), query)
	bad, err := refusedFilter(err)
	if err != nil {
		return err
	}
	rows := []operatorEvent{}
	for _, e := range page.Data {
		rows = append(rows, operatorEvent{e, v.Path("portal", e.Tenant, "events", e.ID), v.Path("tenants", e.Tenant), eventChip(e.State)})
	}
	with := deliveryList{Filter: filter}
	data := map[string]any{"Rows": rows, "Filter": filter, "Bad": bad, "Shown": some(len(rows), "event", "events"), "First": "", "Older": ""}
	if page.NextCursor != nil {
		data["Older"] = with.older(*page.NextCursor, "")
	}
	if filter.Get("cursor") != "" {
		data["First"] = with.with("cursor", "")
	}
	return v.Show(Page{Name: "operator-events", Title: "Events", Section: sectionDeliveries, Status: listStatus(bad), Data: data})
}

// foundRow is something that a search found, with its page.
type foundRow struct {
	client.Found
	Page string
	How  string
}

func (o *operator) search(v *Visit) error {
	filter, _ := shortFilter(v.URL.Query(), []string{"q", "tenant"})
	found, err := Ask[client.Search](v, client.Path("v1", "search"), filter)
	bad, err := refusedFilter(err)
	if err != nil {
		return err
	}
	var rows []foundRow
	for _, f := range found.Data {
		row := foundRow{Found: f, How: map[string]string{
			"id": "its id", "key": "its key", "name": "key or name", "endpoint": "URL, uid, description or metadata", "idempotency_key": "the idempotency key", "metadata": "its metadata",
		}[f.By]}
		switch f.Type {
		case "tenant":
			row.Page = v.Path("tenants", f.ID)
		case "endpoint", "event":
			row.Page = v.Path("portal", f.Tenant, f.Type+"s", f.ID)
		case "replay":
			row.Page = v.Path("portal", f.Tenant, "recover", f.ID)
		case "cancellation", "erasure":
			row.Page = v.Path(f.Type+"s", f.ID)
		case "source":
			row.Page = v.Path("sources", f.ID)
		case "delivery":
			row.Page = v.Path("portal", f.Tenant, "deliveries", f.ID)
		}
		rows = append(rows, row)
	}
	// One thing, found by its id, is what was meant.
	if len(rows) > 0 && rows[0].By == "id" && rows[len(rows)-1].Page != "" && (len(rows) == 1 || rows[0].Type == "attempt") {
		return v.Redirect(rows[len(rows)-1].Page, "")
	}
	return v.Show(Page{Name: "search", Title: "Search", Status: listStatus(bad), Data: map[string]any{"Rows": rows, "Q": filter.Get("q"), "Tenant": filter.Get("tenant"), "More": found.More, "Bad": bad}})
}

// audited is one act in the record of who did what.
type audited struct {
	At    time.Time `json:"at"`
	Actor struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"actor"`
	Action   string         `json:"action"`
	Tenant   string         `json:"tenant"`
	ObjectID string         `json:"object_id"`
	Changes  map[string]any `json:"changes"`
}

// Fields are the names of what was changed.
func (a audited) Fields() []string { return slices.Sorted(maps.Keys(a.Changes)) }

func (o *operator) audit(v *Visit) error {
	if !v.May("admin") {
		return NotPermitted("read the record of who did what")
	}
	filter, _ := shortFilter(v.URL.Query(), []string{"tenant", "cursor"})
	query := url.Values{"limit": {"50"}}
	for name, values := range filter {
		query[name] = values
	}
	page, _, err := client.Call[client.Page[audited]](v.Context(), v.admin(), client.Request{Path: client.Path("v1", "audit"), Query: query})
	if err != nil {
		return err
	}
	older := ""
	if page.NextCursor != nil {
		query.Del("limit")
		query.Set("cursor", *page.NextCursor)
		older = withQuery(v.Path("audit"), query)
	}
	return v.Show(Page{Name: "audit", Title: "Audit", Section: sectionAudit, Data: map[string]any{"Rows": page.Data, "Older": older, "Tenant": filter.Get("tenant"), "Shown": some(len(page.Data), "act", "acts")}})
}
