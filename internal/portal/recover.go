package portal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// recoverPage chooses a range, counts what it holds, and lists the replays before.
type recoverPage struct {
	Endpoints []client.Endpoint
	Form      recoverForm
	Ranges    []Link
	Count     *client.Job // nil: not counted yet
	Confirm   bool        // the number is to be typed
	Jobs      []jobRow
	Zone      string
}

// recoverForm is what was chosen. Its fields are named as the API's.
type recoverForm struct {
	EndpointID, From, To, State, EventTypes, Rate string
	Faults                                        faults
}

var recoverFields = []string{"endpoint_id", "from", "to", "state", "event_types", "rate_per_second"}

// choices of what a replay is about.
type choice struct{ State, Name, About string }

var choices = []choice{
	{"dead", "Failed", "ended without a 2xx"},
	{"missing", "Missing", "events that were never planned for this endpoint, for instance because it was added later"},
	{"cancelled", "Cancelled", "called off before they were sent"},
	{"delivered", "Delivered", "your server has had these; it will see them a second time"},
	{"all", "All that have ended", ""},
}

// typedAbove is from how many deliveries on the number is typed before they are sent.
const typedAbove = 100

func (c *customer) recover(v *Visit) error {
	filter, short := shortFilter(v.URL.Query(), []string{"endpoint_id", "from", "to", "state", "event_types", "rate_per_second"})
	if !short {
		return v.Redirect(withQuery(v.at("recover"), filter), "")
	}
	return c.showRecover(v, recoverForm{
		EndpointID: filter.Get("endpoint_id"), From: filter.Get("from"), To: filter.Get("to"), State: filter.Get("state"),
		EventTypes: filter.Get("event_types"), Rate: filter.Get("rate_per_second"),
	}, http.StatusOK)
}

// showRecover counts by a dry run where a range is chosen. Nothing is sent by looking.
func (c *customer) showRecover(v *Visit, form recoverForm, status int) error {
	endpoints, err := c.choices(v)
	if err != nil {
		return err
	}
	page := &recoverPage{Endpoints: endpoints, Ranges: c.ranges(v, form, endpoints)}
	chosen := form.From != "" || form.To != ""
	if form.State == "" {
		form.State = "dead"
	}
	if chosen && (form.Faults == nil || form.Faults["confirm"] != "") {
		body, err := form.body(v.prefs.zone, v.Now, true)
		if err == nil {
			var counted client.Job
			if counted, err = Tell[client.Job](v.Context(), v.write(), "POST", v.tenantPath("replays"), body, ""); err == nil {
				page.Count, page.Confirm = &counted, counted.Matched > typedAbove
			}
		}
		if err != nil {
			if form.Faults = faultsOf(err, recoverFields...); form.Faults == nil {
				return err
			}
		}
	}
	jobs, err := Ask[client.Page[client.Job]](v, v.tenantPath("replays"), url.Values{"limit": {"10"}})
	if err != nil {
		return err
	}
	for _, j := range jobs.Data {
		row := jobRowOf(replayJobs, j, endpoints)
		row.URL = v.at("recover", j.ID)
		page.Jobs = append(page.Jobs, row)
	}
	page.Form = form
	return v.Show(Page{Name: "recover", Title: "Recover", Section: sectionRecover, Status: status, Data: page})
}

// ranges are the usual choices, as links that fill in the form.
func (c *customer) ranges(v *Visit, form recoverForm, endpoints []client.Endpoint) []Link {
	at := func(from, to time.Time) string {
		q := url.Values{"from": {stampOf(from)}, "to": {stampOf(to)}}
		for name, value := range map[string]string{"endpoint_id": form.EndpointID, "state": form.State, "event_types": form.EventTypes} {
			if value != "" {
				q.Set(name, value)
			}
		}
		return "?" + q.Encode()
	}
	now := v.Now.Add(time.Minute).Truncate(time.Minute)
	var links []Link
	for _, e := range endpoints {
		if o := outageOf(v, e); o != nil && (form.EndpointID == "" || form.EndpointID == e.ID) {
			links = append(links, Link{o.Replay, "the outage of " + hostOf(e.URL)})
			break
		}
	}
	return append(links,
		Link{at(now.Add(-time.Hour), now), "last hour"},
		Link{at(now.Add(-24*time.Hour), now), "last 24 hours"},
		Link{at(now.Add(-7*24*time.Hour), now), "last 7 days"})
}

func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// body is the request that the form means.
func (f *recoverForm) body(zone *time.Location, now time.Time, dry bool) ([]byte, error) {
	request := map[string]any{"state": f.State, "dry_run": dry}
	for name, value := range map[string]string{"from": f.From, "to": f.To} {
		if value == "" {
			continue
		}
		at, err := readTime(value, zone)
		if err != nil {
			return nil, &client.Error{Status: http.StatusUnprocessableEntity, Items: []client.Item{{Path: name, Detail: err.Error()}}}
		}
		request[name] = at.UTC().Format(time.RFC3339Nano)
	}
	if f.To == "" {
		request["to"] = now.UTC().Format(time.RFC3339Nano)
	}
	if f.EndpointID != "" {
		request["endpoint_id"] = f.EndpointID
	}
	if list := types(f.EventTypes); len(list) > 0 {
		request["event_types"] = list
	}
	if f.Rate != "" {
		request["rate_per_second"] = json.RawMessage(jsonNumber(f.Rate))
	}
	return json.Marshal(request)
}

// readTime reads what a browser's field gives (2026-11-30T08:12, in the zone the page shows) or
// what somebody pastes (RFC 3339, with its own zone).
func readTime(s string, zone *time.Location) (time.Time, error) {
	if zone == nil {
		zone = time.UTC
	}
	s = strings.TrimSpace(s)
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time such as 2026-11-30T08:12, or with a zone of its own 2026-11-30T08:12:00Z")
}

// startReplay does what was counted, after the number was typed where it is large.
func (c *customer) startReplay(v *Visit) error {
	form := recoverForm{
		EndpointID: v.PostFormValue("endpoint_id"), From: v.PostFormValue("from"), To: v.PostFormValue("to"), State: v.PostFormValue("state"),
		EventTypes: v.PostFormValue("event_types"), Rate: v.PostFormValue("rate_per_second"),
	}
	counted, err := strconv.Atoi(v.PostFormValue("counted"))
	if err != nil {
		return errBadForm
	}
	typed := strings.NewReplacer(",", "", ".", "", " ", "").Replace(v.PostFormValue("confirm"))
	if counted > typedAbove && typed != strconv.Itoa(counted) {
		form.Faults = faults{"confirm": fmt.Sprintf("Type %d, the number of deliveries, to start. Nothing was sent.", counted)}
		return c.showRecover(v, form, http.StatusUnprocessableEntity)
	}
	body, err := form.body(v.prefs.zone, v.Now, false)
	if err != nil {
		form.Faults = faultsOf(err, recoverFields...)
		return c.showRecover(v, form, http.StatusUnprocessableEntity)
	}
	job, err := Tell[client.Job](v.Context(), v.write(), "POST", v.tenantPath("replays"), body, v.Key())
	if form.Faults = faultsOf(err, recoverFields...); form.Faults != nil {
		return c.showRecover(v, form, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return v.Redirect(v.at("recover", job.ID), "")
}
