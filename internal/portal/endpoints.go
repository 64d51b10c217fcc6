package portal

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// endpointChip is the chip of an endpoint: its state, and how its server does.
func endpointChip(e client.Endpoint) chip {
	switch e.State {
	case "draft":
		return chip{"mute", "edit", "Draft"}
	case "paused":
		return chip{"mute", "pause", "Paused"}
	case "disabled":
		return chip{"bad", "mute", "Switched off"}
	}
	h := e.Health
	switch {
	case e.Fault != "":
		return chip{"bad", "warn", "Unusable"}
	case h.Breaker == "open", h.Breaker == "probing":
		return chip{"bad", "open", "Not answering"}
	case h.Rate != nil:
		return chip{"warn", "retry", "Recovering"}
	case h.ConsecutiveFailures > 0:
		return chip{"warn", "warn", "Failing"}
	}
	return chip{"ok", "ok", "Sending"}
}

type endpointRow struct {
	client.Endpoint
	Chip chip
	Page string
	Day  bars
}

// dayStats is how an endpoint's last 24 hours went, hour by hour.
func dayStats(v *Visit, endpoint string) (client.Stats, error) {
	return Ask[client.Stats](v, v.tenantPath("stats"), url.Values{
		"endpoint_id": {endpoint}, "bucket": {"1h"}, "to": {stampOf(v.Now.Add(time.Second))},
		"from": {stampOf(v.Now.Truncate(time.Hour).Add(-23 * time.Hour))},
	})
}

// mostChoices are the endpoints a list offers to choose from; a filter takes any.
const mostChoices = 1000

// choices are the tenant's endpoints, to choose from and to name rows of lists by.
func (c *customer) choices(v *Visit) (endpoints []client.Endpoint, err error) {
	query := url.Values{"limit": {"250"}}
	for len(endpoints) < mostChoices {
		page, err := Ask[client.Page[client.Endpoint]](v, v.tenantPath("endpoints"), query)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, page.Data...)
		if page.NextCursor == nil {
			break
		}
		query.Set("cursor", *page.NextCursor)
	}
	return endpoints, nil
}

func (c *customer) endpoints(v *Visit) error {
	query := url.Values{"limit": {"50"}} // each row has a picture of its own
	if cursor := v.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	list, err := Ask[client.Page[client.Endpoint]](v, v.tenantPath("endpoints"), query)
	if err != nil {
		return err
	}
	var rows []endpointRow
	for _, e := range list.Data {
		row := endpointRow{Endpoint: e, Chip: endpointChip(e), Page: v.at("endpoints", e.ID)}
		stats, err := dayStats(v, e.ID)
		if refused, is := errors.AsType[*client.Error](err); err != nil && (!is || refused.Status != http.StatusNotFound) {
			return err // one that was removed a moment ago has no picture
		}
		row.Day = dayOf(stats.Data)
		rows = append(rows, row)
	}
	data := map[string]any{"Endpoints": rows, "Older": "", "Shown": some(len(rows), "endpoint", "endpoints")}
	if list.NextCursor != nil {
		data["Older"] = withQuery(v.at("endpoints"), url.Values{"cursor": {*list.NextCursor}})
	}
	return v.Show(Page{Name: "endpoints", Title: "Endpoints", Section: sectionEndpoints, Data: data})
}

// endpointPage is one endpoint.
type endpointPage struct {
	client.Endpoint
	Chip     chip
	Name     string
	Outage   *outage
	Overlap  *overlap
	Latest   []deliveryRow
	Form     testForm
	Here     string // the address of this page
	Overlaps []struct{ Seconds, Name string }
	List     string
	Day      dayPicture
}

// overlap is the time in which two secrets sign.
type overlap struct {
	Ends       time.Time
	Total, Run int // seconds
}

// testForm is the form of the test event, with what was wrong with it the last time.
type testForm struct {
	Type, Payload string
	Faults        faults
}

const testPayload = `{"type":"waybill.test","data":{"note":"a test, nothing happened"}}`

var overlaps = []struct{ Seconds, Name string }{
	{"86400", "24 hours"}, {"3600", "1 hour"}, {"259200", "3 days"}, {"604800", "7 days"}, {"0", "not at all (it leaked)"},
}

func (c *customer) endpoint(v *Visit) error {
	return c.showEndpoint(v, v.PathValue("ep"), testForm{Type: "waybill.test", Payload: testPayload}, http.StatusOK)
}

func (c *customer) showEndpoint(v *Visit, id string, form testForm, status int) error {
	e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", id), nil)
	if err != nil {
		return err
	}
	latest, err := Ask[client.Page[client.Delivery]](v, v.tenantPath("deliveries"), url.Values{"endpoint_id": {e.ID}, "limit": {"8"}})
	if err != nil {
		return err
	}
	page := &endpointPage{
		Endpoint: e, Chip: endpointChip(e), Name: e.Description, Latest: rowsOf(v, latest.Data), Form: form, Overlaps: overlaps,
		Here: v.at("endpoints", e.ID), List: withQuery(v.at("deliveries"), url.Values{"endpoint_id": {e.ID}}),
	}
	if page.Name == "" {
		page.Name = hostOf(e.URL)
	}
	stats, err := dayStats(v, e.ID)
	if err != nil {
		return err
	}
	page.Day = pictureOf(stats)
	if page.Outage = outageOf(v, e); page.Outage != nil {
		page.Outage.Dead, page.Outage.DeadCapped = c.countDead(v, e.ID, page.Outage.From)
	}
	for _, s := range e.Secrets {
		if s.ExpiresAt == nil || !s.ExpiresAt.After(v.Now) {
			continue
		}
		began := e.Secrets[0].CreatedAt // the rotation that set the end
		page.Overlap = &overlap{Ends: *s.ExpiresAt, Total: max(1, int(s.ExpiresAt.Sub(began).Seconds())), Run: max(0, int(v.Now.Sub(began).Seconds()))}
		break
	}
	return v.Show(Page{Name: "endpoint", Title: page.Name, Section: sectionEndpoints, Status: status, Data: page})
}

// setState changes an endpoint's state and says what that means.
func (c *customer) setState(v *Visit, state, say string) error {
	body, err := json.Marshal(map[string]string{"state": state})
	if err != nil {
		return err
	}
	id := v.PathValue("ep")
	if _, err := Tell[client.Endpoint](v.Context(), v.write(), "PATCH", v.tenantPath("endpoints", id), body, ""); err != nil {
		return err
	}
	return v.Redirect(v.at("endpoints", id), say)
}

func (c *customer) pause(v *Visit) error {
	return c.setState(v, "paused", "Paused. New events are kept and wait until you resume.")
}

func (c *customer) resume(v *Visit) error {
	say := "Resumed. What waited is sent now, the oldest first."
	if e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", v.PathValue("ep")), nil); err == nil && e.State == "draft" {
		say = "Started. It gets the events from now on."
	}
	return c.setState(v, "active", say)
}

// probe has the oldest waiting delivery tried now.
func (c *customer) probe(v *Visit) error {
	id := v.PathValue("ep")
	probed, err := Tell[struct {
		Pending int `json:"pending"`
	}](v.Context(), v.write(), "POST", v.tenantPath("endpoints", id, "probe"), nil, v.Key())
	if err != nil {
		return err
	}
	say := "The oldest waiting delivery is tried now. If your server answers 2xx, the rest follows."
	if probed.Pending == 0 {
		say = "Nothing waits at this endpoint, so there was nothing to try."
	}
	return v.Redirect(v.at("endpoints", id), say)
}

// test sends a test event, and leads to its delivery.
func (c *customer) test(v *Visit) error {
	id := v.PathValue("ep")
	form := testForm{Type: v.PostFormValue("type"), Payload: v.PostFormValue("payload")}
	head, err := json.Marshal(map[string]string{"type": form.Type})
	if err != nil {
		return err
	}
	body := append(head[:len(head)-1], `,"payload":`+form.Payload+`}`...)
	sent, err := Tell[struct {
		DeliveryID string `json:"delivery_id"`
	}](v.Context(), v.write(), "POST", v.tenantPath("endpoints", id, "test"), body, v.Key())
	if form.Faults = faultsOf(err, "type", "payload"); form.Faults != nil {
		return c.showEndpoint(v, id, form, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	if !c.planned(v, sent.DeliveryID) {
		return v.Redirect(v.at("endpoints", id), "The test event is on its way.")
	}
	return v.Redirect(v.at("deliveries", sent.DeliveryID), "The test event is on its way. This page follows it.")
}

// soonPlanned is how long a page waits for what was asked for a moment ago to be planned.
const soonPlanned = 3 * time.Second

// planned waits until a delivery is there to be shown: the API answers before its owner has planned
// it, and a page about it would say that there is no such thing.
func (c *customer) planned(v *Visit, id string) bool {
	late := time.After(soonPlanned)
	for {
		if _, err := Ask[client.Delivery](v, v.tenantPath("deliveries", id), nil); err == nil {
			return true
		}
		select {
		case <-late:
			return false
		case <-v.Context().Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// askRemove says what removing would touch, before it does.
func (c *customer) askRemove(v *Visit) error {
	e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", v.PathValue("ep")), nil)
	if err != nil {
		return err
	}
	return v.Show(Page{Name: "remove", Title: "Remove an endpoint", Section: sectionEndpoints, Data: e})
}

func (c *customer) remove(v *Visit) error {
	if _, err := Tell[struct{}](v.Context(), v.write(), "DELETE", v.tenantPath("endpoints", v.PathValue("ep")), nil, ""); err != nil {
		return err
	}
	return v.Redirect(v.at("endpoints"), "The endpoint is removed. What waited for it is cancelled and can still be seen.")
}

// rotate gives the endpoint a new secret, which is on this one page and nowhere else after it.
func (c *customer) rotate(v *Visit) error {
	id := v.PathValue("ep")
	// The number goes into the body as it is: the API says what is wrong with one that is none.
	body := []byte(`{"overlap_seconds":` + jsonNumber(v.PostFormValue("overlap_seconds")) + `}`)
	rotated, err := Tell[client.Rotated](v.Context(), v.write(), "POST", v.tenantPath("endpoints", id, "secret", "rotate"), body, v.Key())
	if err != nil {
		return err
	}
	e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", id), nil)
	if err != nil {
		return err
	}
	return c.showSecret(v, e, rotated.Secret, rotated.PreviousExpiresAt, false)
}

// showSecret is the one page that holds a secret.
func (c *customer) showSecret(v *Visit, e client.Endpoint, secret string, old *time.Time, made bool) error {
	data := map[string]any{"Endpoint": e, "Secret": secret, "Old": old, "Made": made}
	return v.Show(Page{Name: "secret", Title: "Your signing secret", Section: sectionEndpoints, Data: data})
}

// jsonNumber is s where it is a number, else a string that the API will refuse with a sentence.
func jsonNumber(s string) string {
	var n json.Number
	if json.Unmarshal([]byte(s), &n) == nil && n != "" && s[0] != '"' {
		return s
	}
	quoted, _ := json.Marshal(s) // a string always can be
	return string(quoted)
}
