package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/replay"
)

// postReplay plans many deliveries again, or counts them.
func (a *API) postReplay(q *request) (*answer, error) {
	r := jobRequest{filter: outbox.JobFilter{State: outbox.ReplayDead}}
	return a.postJob(q, outbox.JobReplay, replayFields, &r)
}

// postCancellation ends many pending deliveries, or counts them.
func (a *API) postCancellation(q *request) (*answer, error) {
	return a.postJob(q, outbox.JobCancellation, cancellationFields, &jobRequest{})
}

// postErasure takes the bytes of many events away, or counts them.
func (a *API) postErasure(q *request) (*answer, error) {
	return a.postJob(q, outbox.JobErasure, erasureFields, &jobRequest{})
}

func (a *API) postJob(q *request, jobType outbox.JobType, fields []field[jobRequest], r *jobRequest) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	if err := fillBody(q, raw, fields, r); err != nil {
		return nil, err
	}
	if err := a.checkJob(q, jobType, r); err != nil {
		return nil, err
	}
	key, err := q.idempotencyKey()
	if err != nil {
		return nil, err
	}
	job := outbox.Job{
		ID: outbox.NewJobID(q.now), Type: jobType, Tenant: q.tenant.TenantRef, TenantKey: q.tenant.Key,
		Filter: r.filter, Reason: r.reason, Rate: r.rate, Key: key,
		CreatedBy: q.who.Name, CreatedAt: q.now, State: outbox.JobRunning,
	}
	matched, err := replay.Count(q.Context(), q.store, &job)
	switch {
	case errors.Is(err, replay.ErrTooMany) && jobType == outbox.JobErasure && !r.dry:
		matched = 0 // who must be forgotten must be, however much there is to look through
	case errors.Is(err, replay.ErrTooMany):
		return nil, fail(CodeJobTooLarge, "the range holds more than can be looked through at once; narrow from and to, or name an endpoint_id")
	case err != nil:
		return nil, err
	}
	job.Matched = int64(matched)
	given := len(r.filter.Deliveries)
	if jobType == outbox.JobErasure {
		given = len(r.filter.Events)
	}
	if given > 0 {
		// Those that are not in the state asked for are told, not passed over in silence.
		job.Matched = int64(given)
	}
	if r.dry {
		gone, err := replay.Gone(q.Context(), q.store, &job)
		if err != nil {
			return nil, err
		}
		view := viewJob(&job, true, q.now)
		view.ID, view.State, view.ETA = "", "dry_run", nil
		view.Skipped = min(job.Matched, job.Matched-int64(matched)+int64(gone))
		return ok(view)
	}
	q.author.Entry.Object = job.Name()
	if job, err = q.store.CreateJob(q.Context(), job); err != nil {
		if errors.Is(err, outbox.ErrIdempotencyMismatch) {
			return nil, fail(CodeIdempotencyMismatch, "the key was used with another request")
		}
		return nil, err
	}
	a.cfg.Wake(q.tenant.Shard)
	ans, err := accepted(viewJob(&job, true, q.now))
	if err == nil {
		ans.location = q.URL.Path + "/" + job.Name()
	}
	return ans, err
}

// checkJob checks what fields say together, and that what they name is the tenant's.
func (a *API) checkJob(q *request, jobType outbox.JobType, r *jobRequest) error {
	f := &r.filter
	var items []Item
	missing := func(name string) {
		items = append(items, Item{Path: name, Code: CodeMissingField, Detail: "is required"})
	}
	invalid := func(path, detail string) {
		items = append(items, Item{Path: path, Code: CodeInvalidField, Detail: detail})
	}
	switch {
	case jobType == outbox.JobErasure:
		if len(f.Events)+len(f.Metadata) == 0 && (f.From.IsZero() || f.To.IsZero()) {
			items = append(items, Item{Path: "metadata", Code: CodeMissingField, Detail: "say which events: metadata or event_ids, or from and to for all of a time"})
		}
	case len(f.Deliveries)+len(f.Events) == 0:
		if f.From.IsZero() {
			missing("from")
		}
		if f.To.IsZero() {
			missing("to")
		}
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		invalid("to", "must lie after from")
	}
	if f.State == outbox.ReplayMissing && len(f.Deliveries) > 0 {
		invalid("delivery_ids", "what is missing has no delivery yet")
	}
	if !f.Endpoint.IsZero() {
		_, err := q.store.Endpoint(q.Context(), q.tenant.TenantRef, outbox.EndpointRef{ID: f.Endpoint})
		switch {
		case errors.Is(err, outbox.ErrNotFound):
			invalid("endpoint_id", "the tenant has no such endpoint")
		case err != nil:
			return err
		}
	}
	if len(f.Deliveries) > 0 {
		known, err := q.store.DeliveriesOf(q.Context(), q.tenant.TenantRef, f.Deliveries)
		if err != nil {
			return err
		}
		for i, id := range f.Deliveries {
			if !known[id] {
				invalid(fmt.Sprintf("delivery_ids[%d]", i), "the tenant has no such delivery")
			}
		}
	}
	if len(items) > 0 {
		return failItems(items)
	}
	return nil
}

// jobKind is what the routes of replays and of cancellations differ in.
type jobKind struct {
	types []outbox.JobType
	param string
	parse func(string) (outbox.JobID, error)
}

var (
	replayJobs = jobKind{
		types: []outbox.JobType{outbox.JobReplay}, param: "rpl",
		parse: func(s string) (outbox.JobID, error) {
			id, err := outbox.ParseReplayID(s)
			return outbox.JobID(id), err
		},
	}
	cancellationJobs = jobKind{
		types: []outbox.JobType{outbox.JobCancellation, outbox.JobDeleteTenant}, param: "can",
		parse: func(s string) (outbox.JobID, error) {
			id, err := outbox.ParseCancellationID(s)
			return outbox.JobID(id), err
		},
	}
	erasureJobs = jobKind{
		types: []outbox.JobType{outbox.JobErasure}, param: "era",
		parse: func(s string) (outbox.JobID, error) {
			id, err := outbox.ParseErasureID(s)
			return outbox.JobID(id), err
		},
	}
)

func (k *jobKind) id(q *request) (outbox.JobID, error) {
	id, err := k.parse(q.PathValue(k.param))
	if err != nil {
		return id, outbox.ErrNotFound
	}
	return id, nil
}

// getJob serves the tenant's route and, with the zero tenant, the operator's.
func getJob(k jobKind) func(a *API, q *request) (*answer, error) {
	return func(a *API, q *request) (*answer, error) {
		id, err := k.id(q)
		if err != nil {
			return nil, err
		}
		job, err := q.store.Job(q.Context(), q.tenant.TenantRef, k.types, id)
		if err != nil {
			return nil, err
		}
		return ok(viewJob(&job, true, q.now))
	}
}

// cancelJob stops a job. One that has ended is shown as it is.
func cancelJob(k jobKind) func(a *API, q *request) (*answer, error) {
	return func(a *API, q *request) (*answer, error) {
		id, err := k.id(q)
		if err != nil {
			return nil, err
		}
		if _, err := q.empty(); err != nil {
			return nil, err
		}
		job, err := q.store.RequestJobCancel(q.Context(), q.tenant.TenantRef, k.types, id)
		if err != nil {
			return nil, err
		}
		if job.State.Ended() {
			return ok(viewJob(&job, true, q.now))
		}
		a.cfg.Wake(job.Tenant.Shard)
		job.State = outbox.JobStopping
		return accepted(viewJob(&job, true, q.now))
	}
}

func listJobs(k jobKind) func(a *API, q *request) (*answer, error) {
	return func(a *API, q *request) (*answer, error) {
		p := q.params()
		query := outbox.JobQuery{Tenant: q.tenant.TenantRef, Types: k.types}
		if query.Tenant.ID == 0 {
			t, err := a.tenantParam(q, p)
			if err != nil {
				return nil, err
			}
			if t != nil {
				query.Tenant = t.TenantRef
			}
		}
		page, after := p.page()
		if err := p.err(); err != nil {
			return nil, err
		}
		query.After = outbox.JobID(after)
		jobs, err := q.store.Jobs(q.Context(), query, oneMore(page))
		return listed(p, page, jobs, err, func(j *outbox.Job) (position, jobView) { return position(j.ID), viewJob(j, false, q.now) })
	}
}

// jobRoutes are the routes of replays, cancellations and erasures, below a tenant and for the operator.
func jobRoutes() []*route {
	const tenant = "/v1/tenants/{tenant}"
	var table []*route
	add := func(rows ...*route) { table = append(table, rows...) }
	add(
		&route{method: "POST", path: tenant + "/replays", name: "createReplay", tag: "Jobs", scope: ScopeWrite,
			summary: "Deliver many again", about: "[from, to) is the events' time. Replays never delay live deliveries. What ends after the request is left alone.",
			body: describe("ReplayInput", replayFields), answers: map[int]any{200: jobView{}, 202: jobView{}}, handle: (*API).postReplay},
		&route{method: "POST", path: tenant + "/cancellations", name: "createCancellation", tag: "Jobs", scope: ScopeWrite,
			summary: "Cancel many pending deliveries", about: "[from, to) is the events' time. They keep a row and can be replayed.",
			body: describe("CancellationInput", cancellationFields), answers: map[int]any{200: jobView{}, 202: jobView{}}, handle: (*API).postCancellation},
		&route{method: "POST", path: tenant + "/erasures", name: "createErasure", tag: "Jobs", scope: ScopeWrite,
			summary: "Erase the bytes of many events", about: "For instance those of one person, by what their metadata says, or all of a time, before a tenant is deleted. As for one event: the events, their deliveries and attempts stay, and the books with them; what is pending ends for want of its bytes, and none can be replayed. Events published after the request are left alone. An erasure of all of a time also takes the bodies that the tenant's sources have in quarantine from that time, uncounted; one by metadata, types or ids is about events alone.",
			body: describe("ErasureInput", erasureFields), answers: map[int]any{200: jobView{}, 202: jobView{}}, handle: (*API).postErasure},
	)
	for _, each := range []struct {
		kind             jobKind
		path, noun, name string
	}{
		{replayJobs, "/replays", "replay", "Replay"},
		{cancellationJobs, "/cancellations", "cancellation", "Cancellation"},
		{erasureJobs, "/erasures", "erasure", "Erasure"},
	} {
		one := each.path + "/{" + each.kind.param + "}"
		add(
			&route{method: "GET", path: tenant + each.path, name: "list" + each.name + "s", tag: "Jobs", scope: ScopeRead,
				summary: "List a tenant's " + each.noun + "s", query: listParams,
				answers: map[int]any{200: list[jobView]{}}, handle: listJobs(each.kind)},
			&route{method: "GET", path: tenant + one, name: "get" + each.name, tag: "Jobs", scope: ScopeRead,
				summary: "Read a " + each.noun, answers: map[int]any{200: jobView{}}, handle: getJob(each.kind)},
			&route{method: "POST", path: tenant + one + "/cancel", name: "cancel" + each.name, tag: "Jobs", scope: ScopeWrite,
				summary: "Stop a " + each.noun, about: "Within seconds nothing more is started. What a replay planned and did not send is again what it was before; what was cancelled or erased stays so.",
				body: emptySchema(), answers: map[int]any{200: jobView{}, 202: jobView{}}, handle: cancelJob(each.kind)},
			&route{method: "GET", path: "/v1" + each.path, name: "listAll" + each.name + "s", tag: "Operator", scope: ScopeRead, operator: true,
				summary: "List all tenants' " + each.noun + "s", query: queryOf(listParams, []param{tenantParam}),
				answers: map[int]any{200: list[jobView]{}}, refuses: []int{http.StatusNotFound}, handle: listJobs(each.kind)},
			&route{method: "GET", path: "/v1" + one, name: "lookUp" + each.name, tag: "Operator", scope: ScopeRead, operator: true,
				summary: "Find a " + each.noun + " by id, also of a deleted tenant", answers: map[int]any{200: jobView{}},
				refuses: []int{http.StatusNotFound}, handle: getJob(each.kind)},
		)
	}
	return table
}
