package portal

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// eventList is the page of events.
type eventList struct {
	Events   []eventRow
	Tabs     []stateTab
	Filter   url.Values
	Filtered bool
	Periods  []struct{ Value, Name string }
	Shown    string
	First    string
	Older    string
	Bad      string
}

type eventRow struct {
	client.Event
	Chip chip
	URL  string
}

var eventTabs = []struct{ State, Name string }{{"", "All"}, {"failed", "Failed"}, {"pending", "Waiting"}, {"cancelled", "Cancelled"}}

// eventChip is the chip of an event, which sums up its deliveries.
func eventChip(state string) chip {
	switch state {
	case "failed":
		return chip{"bad", "bad", "Failed"}
	case "delivered":
		return chip{"ok", "ok", "Delivered"}
	case "cancelled":
		return chip{"mute", "mute", "Cancelled"}
	case "unmatched":
		return chip{"mute", "mute", "Not wanted"}
	}
	return chip{"wait", "wait", "Waiting"}
}

func (c *customer) events(v *Visit) error {
	filter, short := shortFilter(v.URL.Query(), []string{"state", "event_type", "period", "id", "from", "to", "cursor"})
	if !short {
		return v.Redirect(withQuery(v.at("events"), filter), "")
	}
	if id := strings.TrimSpace(filter.Get("id")); id != "" {
		return c.goTo(v, id)
	}
	list := &eventList{Filter: filter, Periods: periodNames}
	addresses := deliveryList{Filter: filter}
	for _, t := range eventTabs {
		list.Tabs = append(list.Tabs, stateTab{Name: t.Name, URL: addresses.with("state", t.State), Current: filter.Get("state") == t.State})
	}
	for name := range filter {
		list.Filtered = list.Filtered || name != "cursor"
	}
	query, err := apiFilter(filter, v.Now)
	var page client.Page[client.Event]
	if err == nil {
		query.Set("limit", strconv.Itoa(pageRows))
		page, err = Ask[client.Page[client.Event]](v, v.tenantPath("events"), query)
	}
	if list.Bad, err = refusedFilter(err); err != nil {
		return err
	}
	for _, e := range page.Data {
		list.Events = append(list.Events, eventRow{e, eventChip(e.State), v.at("events", e.ID)})
	}
	list.Shown = some(len(page.Data), "row", "rows")
	if page.NextCursor != nil {
		list.Older = addresses.older(*page.NextCursor, query.Get("from"))
	}
	if filter.Get("cursor") != "" {
		list.First = addresses.with("cursor", "")
	}
	return v.Show(Page{Name: "events", Title: "Events", Section: sectionEvents, Status: listStatus(list.Bad), Data: list})
}

// eventPage is one event, its deliveries and its bytes.
type eventPage struct {
	client.Event
	Chip       chip
	Deliveries []deliveryRow
	More       string
	Payload    *body
	Gone       string
	NotMatched []notMatched
	Act        string
}

// notMatched says why an endpoint did not get the event.
type notMatched struct {
	EndpointID string `json:"endpoint_id"`
	URL        string `json:"url"`
	Reason     string `json:"reason"`
}

// Why puts the reason into words.
func (n notMatched) Why() string {
	switch n.Reason {
	case "event_type":
		return "does not want this type"
	case "filter":
		return "its filter does not match"
	case "draft":
		return "was a draft"
	case "created_after":
		return "was added after the event"
	case "deleted":
		return "was removed"
	}
	return n.Reason
}

func (c *customer) event(v *Visit) error {
	id := v.PathValue("evt")
	e, err := Ask[client.Event](v, v.tenantPath("events", id), nil)
	if err != nil {
		return err
	}
	deliveries, err := Ask[client.Page[client.Delivery]](v, v.tenantPath("events", id, "deliveries"), url.Values{"limit": {"50"}})
	if err != nil {
		return err
	}
	page := &eventPage{Event: e, Chip: eventChip(e.State), Deliveries: rowsOf(v, deliveries.Data), Act: v.at("replay")}
	if deliveries.NextCursor != nil {
		page.More = withQuery(v.at("deliveries"), url.Values{"state": {"pending"}})
	}
	if page.Payload, page.Gone, err = readPayload(v, id); err != nil {
		return err
	}
	if explained, err := Ask[struct {
		NotMatched []notMatched `json:"not_matched"`
	}](v, v.tenantPath("events", id), url.Values{"explain": {"true"}}); err == nil {
		page.NotMatched = explained.NotMatched
	}
	refresh := 0
	if e.State == "pending" && v.Now.Sub(e.CreatedAt) < time.Minute {
		refresh = 2
	}
	return v.Show(Page{Name: "event", Title: e.Type, Section: sectionEvents, Refresh: refresh, Data: page})
}

// payload is the bytes to keep. They never open as a page of ours.
func (c *customer) payload(v *Visit) error {
	id := v.PathValue("evt")
	raw, err := v.API().Do(v.Context(), client.Request{Path: v.tenantPath("events", id, "payload")})
	if err != nil {
		return err
	}
	v.download(raw, id+".json")
	return nil
}

// download answers with a stranger's bytes as a file: no browser may take them for a page.
func (v *Visit) download(raw []byte, name string) {
	h := v.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	_, _ = v.w.Write(raw) // the reader is gone; nobody is left to tell
}
