package portal

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobKind is what the pages of replays, cancellations and erasures differ in.
type jobKind struct {
	Path        string // in the API as in the dashboard
	Title, Noun string // many jobs, one job
	One, Many   string // what it counts
	DoneAs      string // what has become of those that are done; "" of a replay, which tells more
	Skips       string // why some were skipped
	Stop        string // said once somebody has stopped it
	Intro       string // of the list
	None, Empty string // where there are none
}

var (
	replayJobs = jobKind{
		Path: "replays", Title: "Replays", Noun: "Replay", One: "delivery", Many: "deliveries",
		Skips: "the endpoint or the body is gone",
		Stop:  "Stopping. What is already on its way finishes; the rest stays as it was.",
		Intro: "Ranges that were sent again, with how far they are. A new one is made on a tenant’s pages, under Recover.",
		None:  "Nothing has been replayed by range",
		Empty: "Choose a tenant and open Recover: it counts first and sends nothing until you confirm.",
	}
	jobKinds = []jobKind{replayJobs, {
		Path: "cancellations", Title: "Cancellations", Noun: "Cancellation", One: "delivery", Many: "deliveries",
		DoneAs: "Cancelled",
		Skips:  "they had ended meanwhile",
		Stop:   "Stopping. What was cancelled stays cancelled.",
		Intro:  "Pending deliveries that were called off together, by somebody or because their tenant was deleted.",
		None:   "Nothing has been called off",
		Empty:  "POST …/cancellations calls pending deliveries off, and so does deleting a tenant.",
	}, {
		Path: "erasures", Title: "Erasures", Noun: "Erasure", One: "event", Many: "events",
		DoneAs: "Erased",
		Skips:  "their bytes had gone meanwhile",
		Stop:   "Stopping. What was erased stays erased.",
		Intro:  "Events whose bytes were ended for good, for instance those of one person.",
		None:   "Nothing has been erased by range",
		Empty:  "POST …/erasures ends the bytes of many events: of a time, of a person by metadata, or by their ids.",
	}}
)

// jobRow is a job in a list.
type jobRow struct {
	client.Job
	Kind    jobKind
	Chip    chip
	About   string // which deliveries or events
	URL     string // its page
	Percent int
	Left    int
	Reached int // done and not skipped
}

func jobRowOf(kind jobKind, j client.Job, endpoints []client.Endpoint) jobRow {
	row := jobRow{Job: j, Kind: kind, Chip: jobChip(&j), About: aboutJob(kind, &j, endpoints), Percent: 100, Left: max(0, j.Matched-j.Done), Reached: j.Done - j.Skipped}
	if j.Matched > 0 {
		row.Percent = min(100, j.Done*100/j.Matched)
	}
	return row
}

func jobChip(j *client.Job) chip {
	switch {
	case j.Stopping:
		return chip{"warn", "wait", "Stopping"}
	case j.State == "done":
		return chip{"ok", "ok", "Done"}
	case j.State == "cancelled":
		return chip{"mute", "mute", "Stopped"}
	case j.State == "failed":
		return chip{"bad", "bad", "Failed"}
	}
	return chip{"wait", "send", "Running"}
}

// aboutJob says in a few words what a job was asked to look for, but for the time.
func aboutJob(kind jobKind, j *client.Job, endpoints []client.Endpoint) string {
	f := &j.Filter
	var words []string
	// A job is about a time, a person's metadata or chosen ids; a list leaves the ids out.
	chosen := len(f.DeliveryIDs)+len(f.EventIDs) > 0 || f.From == nil && f.To == nil && len(f.Metadata) == 0
	switch {
	case j.Type == "delete_tenant":
		words = append(words, "All of a deleted tenant")
	case chosen:
		words = append(words, "Chosen ones")
	case f.State != "":
		name := f.State
		for _, c := range choices {
			if c.State == f.State {
				name = c.Name
			}
		}
		words = append(words, name)
	}
	if f.EndpointID != "" {
		name := f.EndpointID
		for _, e := range endpoints {
			if e.ID == f.EndpointID {
				name = hostOf(e.URL)
			}
		}
		words = append(words, name)
	} else if kind.Path == "replays" && !chosen {
		words = append(words, "all endpoints")
	}
	if len(f.EventTypes) > 0 && !slices.Contains(f.EventTypes, "*") {
		words = append(words, strings.Join(f.EventTypes, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(f.Metadata)) {
		words = append(words, key+" = "+f.Metadata[key])
	}
	if len(words) == 0 {
		return "All " + kind.Many
	}
	return strings.Join(words, ", ")
}

// jobPage is a job and how far it is.
type jobPage struct {
	jobRow
	Crumb     Link
	MayStop   bool
	FailedURL string // the address of what a replay failed to deliver again
}

// showJob shows the page of a job.
func (v *Visit) showJob(page jobPage, section string) error {
	refresh := 0
	if page.State == "running" {
		refresh = 1
	}
	return v.Show(Page{Name: "job", Title: page.Kind.Noun, Section: section, Refresh: refresh, Data: &page})
}

// job is a replay on the pages of its tenant.
func (c *customer) job(v *Visit) error {
	j, err := Ask[client.Job](v, v.tenantPath("replays", v.PathValue("rpl")), nil)
	if err != nil {
		return err
	}
	var endpoints []client.Endpoint // the one it is about, unless that was removed
	if j.Filter.EndpointID != "" {
		e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", j.Filter.EndpointID), nil)
		refused, is := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			endpoints = []client.Endpoint{e}
		case !is || refused.Status != http.StatusNotFound:
			return err
		}
	}
	page := jobPage{jobRow: jobRowOf(replayJobs, j, endpoints), Crumb: Link{v.at("recover"), sectionRecover}, MayStop: v.May("replay")}
	page.URL = v.at("recover", j.ID)
	failed := url.Values{"state": {"dead"}}
	if j.Filter.EndpointID != "" {
		failed.Set("endpoint_id", j.Filter.EndpointID)
	}
	page.FailedURL = withQuery(v.at("deliveries"), failed)
	return v.showJob(page, sectionRecover)
}

func (c *customer) cancelJob(v *Visit) error {
	id := v.PathValue("rpl")
	if _, err := Tell[client.Job](v.Context(), v.write(), "POST", v.tenantPath("replays", id, "cancel"), nil, v.Key()); err != nil {
		return err
	}
	return v.Redirect(v.at("recover", id), replayJobs.Stop)
}

// serveJobs registers the operator's pages of jobs.
func (o *operator) serveJobs() {
	for _, kind := range jobKinds {
		o.base.Get("/"+kind.Path, o, func(v *Visit) error { return o.jobs(v, kind) })
		o.base.Get("/"+kind.Path+"/{job}", o, func(v *Visit) error { return o.job(v, kind) })
		o.base.Post("/"+kind.Path+"/{job}/cancel", o, o.may(outbox.PermissionAdmin, "stop jobs", func(v *Visit) error { return o.stopJob(v, kind) }))
	}
}

// jobs of all tenants, of one kind.
func (o *operator) jobs(v *Visit, kind jobKind) error {
	query := url.Values{"limit": {"50"}}
	if cursor := v.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	page, err := Ask[client.Page[client.Job]](v, client.Path("v1", kind.Path), query)
	if err != nil {
		return err
	}
	type row struct {
		jobRow
		TenantPage string
	}
	var rows []row
	refresh := 0
	for _, j := range page.Data {
		r := row{jobRowOf(kind, j, nil), v.Path("tenants", j.Tenant)}
		r.URL = v.Path(kind.Path, j.ID)
		if j.State == "running" {
			refresh = 3
		}
		rows = append(rows, r)
	}
	var kinds []stateTab
	for _, k := range jobKinds {
		kinds = append(kinds, stateTab{Name: k.Title, URL: v.Path(k.Path), Current: k.Path == kind.Path})
	}
	older := ""
	if page.NextCursor != nil {
		older = withQuery(v.Path(kind.Path), url.Values{"cursor": {*page.NextCursor}})
	}
	return v.Show(Page{Name: "operator-jobs", Title: kind.Title, Section: sectionReplays, Refresh: refresh, Data: map[string]any{
		"Kind": kind, "Kinds": kinds, "Rows": rows, "Older": older, "Shown": some(len(rows), strings.ToLower(kind.Noun), strings.ToLower(kind.Title)),
	}})
}

// job is one job, also of a deleted tenant. A replay has its page among its tenant's.
func (o *operator) job(v *Visit, kind jobKind) error {
	j, err := Ask[client.Job](v, client.Path("v1", kind.Path, v.PathValue("job")), nil)
	if err != nil {
		return err
	}
	if kind.Path == "replays" {
		return v.Redirect(v.Path("portal", j.Tenant, "recover", j.ID), "")
	}
	page := jobPage{jobRow: jobRowOf(kind, j, nil), Crumb: Link{v.Path(kind.Path), kind.Title}, MayStop: j.Type != "delete_tenant" && v.May(string(outbox.PermissionAdmin))}
	page.URL = v.Path(kind.Path, j.ID)
	return v.showJob(page, sectionReplays)
}

// stopJob stops a job, whosever it is.
func (o *operator) stopJob(v *Visit, kind jobKind) error {
	j, err := Ask[client.Job](v, client.Path("v1", kind.Path, v.PathValue("job")), nil)
	if err != nil {
		return err
	}
	stop := client.Path("v1", "tenants", j.Tenant, kind.Path, j.ID, "cancel")
	if j, err = Tell[client.Job](v.Context(), v.admin(), "POST", stop, nil, v.Key()); err != nil {
		return err
	}
	return v.Redirect(v.Path(kind.Path, cmp.Or(j.ID, v.PathValue("job"))), kind.Stop)
}
