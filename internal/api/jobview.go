package api

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobView is a replay or a cancellation of many deliveries, or an erasure of many events.
type jobView struct {
	ID            string        `json:"id,omitempty" doc:"rpl_…, can_…, era_…; not there for a dry run"`
	Type          string        `json:"type" enum:"replay,cancellation,delete_tenant,erasure"`
	Tenant        string        `json:"tenant"`
	State         string        `json:"state" enum:"running,done,cancelled,failed,dry_run"`
	Stopping      bool          `json:"stopping,omitempty" doc:"It was cancelled, and takes back what it planned and has not sent"`
	Filter        jobFilterView `json:"filter"`
	Reason        *string       `json:"reason,omitempty" doc:"Of a cancellation or an erasure"`
	RatePerSecond *float64      `json:"rate_per_second,omitempty"`
	Matched       int64         `json:"matched" doc:"Deliveries it is about; of an erasure the events that have their bytes, counted as it goes where there are more than 1,000,000 to look through"`
	Done          int64         `json:"done" doc:"Those that have come to their end: delivered, failed or skipped; of a cancellation those that it cancelled, of an erasure the events that it erased, too"`
	Delivered     int64         `json:"delivered"`
	Failed        int64         `json:"failed" doc:"Dead again"`
	Skipped       int64         `json:"skipped" doc:"Endpoint deleted, payload gone, or no longer in the state that was asked for"`
	CreatedBy     string        `json:"created_by" doc:"The name of the key"`
	CreatedAt     stamp         `json:"created_at"`
	FinishedAt    *stamp        `json:"finished_at"`
	ETA           *stamp        `json:"eta" doc:"When it will be done if it goes on as it has so far; null where that is not known"`
}

// jobFilterView is what a job was asked to look for. Lists leave out the ids.
type jobFilterView struct {
	From        *stamp            `json:"from"`
	To          *stamp            `json:"to"`
	EndpointID  *string           `json:"endpoint_id"`
	EventTypes  []string          `json:"event_types"`
	State       *string           `json:"state,omitempty" enum:"dead,delivered,cancelled,missing,all" doc:"Of a replay"`
	DeliveryIDs []string          `json:"delivery_ids,omitempty"`
	EventIDs    []string          `json:"event_ids,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"Of an erasure"`
}

// viewJob is a job as people see it. ids says whether the ids of its filter are shown.
func viewJob(j *outbox.Job, ids bool, now time.Time) jobView {
	f := &j.Filter
	view := jobView{
		ID: j.Name(), Type: string(j.Type), Tenant: j.TenantKey,
		State: string(j.State),
		Filter: jobFilterView{
			From: stampOf(f.From), To: stampOf(f.To), EventTypes: f.EventTypes, Metadata: f.Metadata, State: orNull(string(f.State)),
		},
		Reason: orNull(j.Reason), RatePerSecond: orNull(j.Rate),
		Matched: j.Matched, Done: j.Done, Delivered: j.Delivered, Failed: j.Failed, Skipped: j.Skipped,
		CreatedBy: j.CreatedBy, CreatedAt: stamp(j.CreatedAt), FinishedAt: stampOf(j.FinishedAt),
		ETA: stampOf(etaOf(j, now)),
	}
	if j.State == outbox.JobStopping {
		view.State, view.Stopping = string(outbox.JobRunning), true
	}
	if len(f.EventTypes) == 0 {
		view.Filter.EventTypes = []string{"*"}
	}
	if !f.Endpoint.IsZero() {
		view.Filter.EndpointID = new(f.Endpoint.String())
	}
	if ids {
		view.Filter.DeliveryIDs, view.Filter.EventIDs = textsOf(f.Deliveries), textsOf(f.Events)
	}
	return view
}

func textsOf[ID interface{ String() string }](ids []ID) []string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return texts
}

// etaOf says when a job will be done: the rest takes as long as what is done has taken, and no
// less than its rate allows. Zero: it is not known, or it does nothing.
func etaOf(j *outbox.Job, now time.Time) time.Time {
	left := float64(j.Matched - j.Done)
	elapsed := now.Sub(j.CreatedAt).Seconds()
	if j.State != outbox.JobRunning || left <= 0 || elapsed <= 0 || j.Done == 0 && j.Rate == 0 {
		return time.Time{}
	}
	var seconds float64
	if j.Done > 0 {
		seconds = left * elapsed / float64(j.Done)
	}
	if j.Rate > 0 {
		seconds = max(seconds, left/j.Rate)
	}
	const longest = 365 * 24 * 60 * 60
	return now.Add(time.Duration(min(seconds, longest) * float64(time.Second)))
}
