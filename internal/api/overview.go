package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// overviewView is how everything stands right now: who is hurting, and what waits for what.
type overviewView struct {
	At              stamp            `json:"at"`
	Dispatch        dispatchView     `json:"dispatch"`
	Pending         int64            `json:"pending" doc:"Deliveries, from the books"`
	Dead            int64            `json:"dead" doc:"Dead and cancelled deliveries that are kept, from the books"`
	OldestPendingAt *stamp           `json:"oldest_pending_at"`
	OldestRunnable  float64          `json:"oldest_runnable_ms" doc:"For how long the delivery that could run for longest has waited: what we are late, and no customer's server is"`
	Hurting         []hurtingView    `json:"hurting" doc:"Endpoints that fail, the worst first, at most 12"`
	OpenBreakers    int              `json:"open_breakers"`
	Capped          bool             `json:"open_breakers_capped,omitempty" doc:"There are more than counted"`
	Waiting         []waitingForView `json:"waiting" doc:"What waits, by what holds it back; counted endpoint by endpoint"`
	Storage         storageView      `json:"storage"`
}

// storageView is how much is kept, and since when.
type storageView struct {
	Bytes    int64  `json:"bytes" doc:"What the database takes up"`
	OldestAt *stamp `json:"oldest_at" doc:"The first day that has room: nothing that is kept is older; null where nothing is kept"`
}

// hurtingView is an endpoint that fails.
type hurtingView struct {
	EndpointID string       `json:"endpoint_id"`
	Tenant     string       `json:"tenant"`
	TenantName string       `json:"tenant_name"`
	URL        string       `json:"url"`
	State      string       `json:"state" enum:"draft,active,paused,disabled"`
	Health     healthView   `json:"health"`
	LastHour   figuresView  `json:"last_hour"`
	Day        []bucketView `json:"day" doc:"The last 24 hours, hour by hour"`
}

// waitingForView is what one reason holds back.
type waitingForView struct {
	Reason    waitReason `json:"reason"`
	Pending   int        `json:"pending"`
	Capped    bool       `json:"pending_capped,omitempty" doc:"There are more than counted"`
	Endpoints int        `json:"endpoints"`
	OldestAt  *stamp     `json:"oldest_at"`
}

// Bounds of one look.
const (
	maxHurting   = 12
	maxUnwell    = 100
	maxLooked    = 200   // endpoints whose backlog is counted
	maxOfEach    = 1_000 // deliveries counted of each
	maxOfStopped = 10_000
)

func (a *API) overview(q *request) (*answer, error) {
	ctx := q.Context()
	view := overviewView{At: stamp(q.now), Hurting: []hurtingView{}, Waiting: []waitingForView{}}
	state, err := a.cfg.Store.Dispatch(ctx)
	if err != nil {
		return nil, err
	}
	view.Dispatch = viewDispatch(state)
	standing, err := a.cfg.Store.Standing(ctx)
	if err != nil {
		return nil, err
	}
	view.Pending, view.Dead = max(standing.Pending, 0), max(standing.Dead, 0)
	cluster, err := a.cfg.Store.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	for i := range cluster.Nodes {
		if n := &cluster.Nodes[i]; q.now.Sub(n.At) <= silentAfter {
			view.OldestRunnable = max(view.OldestRunnable, millis(n.OldestRunnable))
		}
	}
	unwell, err := a.cfg.Store.Unwell(ctx, maxUnwell)
	if err != nil {
		return nil, err
	}
	for _, h := range unwell {
		if h.Breaker != outbox.BreakerClosed {
			view.OpenBreakers++
		}
	}
	view.Capped = len(unwell) == maxUnwell && view.OpenBreakers == maxUnwell
	if err := a.whoHurts(ctx, &view, unwell, q.now); err != nil {
		return nil, err
	}
	if err := a.whatWaits(ctx, &view, state, q.now); err != nil {
		return nil, err
	}
	vitals, err := a.cfg.Store.Vitals(ctx, q.now)
	if err != nil {
		return nil, err
	}
	view.Storage = storageView{vitals.Bytes, stampOf(vitals.OldestDay)}
	return ok(view)
}

// whoHurts finds the endpoints that are cut off or fail most, and tells of each how it has been.
func (a *API) whoHurts(ctx context.Context, view *overviewView, unwell []outbox.EndpointHealth, now time.Time) error {
	failing, err := a.cfg.Store.FailingEndpoints(ctx, now.Add(-time.Hour), maxHurting)
	if err != nil {
		return err
	}
	var ids []outbox.EndpointID
	add := func(id outbox.EndpointID) {
		if len(ids) < maxHurting && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, h := range unwell {
		if h.Breaker != outbox.BreakerClosed {
			add(h.Endpoint)
		}
	}
	for _, t := range failing {
		add(t.Endpoint)
	}
	for _, id := range ids {
		e, err := a.cfg.Store.Endpoint(ctx, outbox.TenantRef{}, outbox.EndpointRef{ID: id})
		if errors.Is(err, outbox.ErrNotFound) {
			continue // deleted a moment ago
		}
		if err != nil {
			return err
		}
		owner, err := a.tenants.getByID(ctx, e.Tenant.ID)
		if errors.Is(err, outbox.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		health, err := a.healthOf(ctx, e.Tenant, maxCounted, rowOf(&e))
		if err != nil {
			return err
		}
		day, err := a.statsOf(ctx, outbox.TrafficQuery{Tenant: e.Tenant, Endpoint: e.ID, From: now.Truncate(time.Hour).Add(-23 * time.Hour), To: now}, time.Hour)
		if err != nil {
			return err
		}
		hour, err := a.statsOf(ctx, outbox.TrafficQuery{Tenant: e.Tenant, Endpoint: e.ID, From: now.Add(-time.Hour), To: now}, time.Hour)
		if err != nil {
			return err
		}
		view.Hurting = append(view.Hurting, hurtingView{
			EndpointID: e.ID.String(), Tenant: owner.Key, TenantName: owner.Name, URL: e.URL, State: string(e.State),
			Health: health(&e, &owner), LastHour: hour.Totals, Day: day.Data,
		})
	}
	return nil
}

// whatWaits sorts the backlog by what holds it back. It goes by the endpoints that have one: each
// is counted so far and no further, so the look costs the same however much waits.
func (a *API) whatWaits(ctx context.Context, view *overviewView, state outbox.DispatchState, now time.Time) error {
	shards := make([]outbox.Shard, outbox.Shards)
	for i := range shards {
		shards[i] = outbox.Shard(i)
	}
	heads, err := a.cfg.Store.Heads(ctx, shards)
	if err != nil {
		return err
	}
	slices.SortFunc(heads, func(x, y outbox.Head) int { return x.NextAt.Compare(y.NextAt) })
	var rows []outbox.EndpointRow
	next := map[outbox.EndpointID]outbox.Head{}
	for _, h := range heads {
		if _, known := next[h.Endpoint]; !known && len(next) < maxLooked {
			next[h.Endpoint] = h
			rows = append(rows, outbox.EndpointRow{Shard: h.Shard, Endpoint: h.Endpoint})
		}
	}
	held, err := a.heldBack(ctx)
	if err != nil {
		return err
	}
	known, err := a.standing(ctx, outbox.TenantRef{}, rows)
	if err != nil {
		return err
	}
	reasons := map[outbox.EndpointID]waitReason{}
	var stopped, moving []outbox.EndpointRow
	for _, row := range rows {
		h := known[row.Endpoint]
		head := next[row.Endpoint]
		reason := held.of(row.Endpoint, head.Tenant)
		switch {
		case state.Paused:
			reason = waitDispatch
		case reason != "":
		case h.Breaker == outbox.BreakerOpen || h.Breaker == outbox.BreakerProbing:
			reason = waitBreaker
		case head.NextAt.After(now):
			reason = waitRetry
		case h.PausedUntil.After(now) || h.Rate > 0:
			reason = waitRate
		case h.current() && h.Limit > 0 && h.InFlight >= h.Limit:
			reason = waitEndpoint
		default:
			reason = waitBacklog
		}
		reasons[row.Endpoint] = reason
		if reason == waitBacklog || reason == waitRetry {
			moving = append(moving, row)
		} else {
			stopped = append(stopped, row)
		}
	}
	byReason := map[waitReason]*waitingForView{}
	var oldest time.Time
	for _, look := range []struct {
		rows []outbox.EndpointRow
		most int
	}{{stopped[:min(len(stopped), 20)], maxOfStopped}, {slices.Concat(stopped[min(len(stopped), 20):], moving), maxOfEach}} {
		if len(look.rows) == 0 {
			continue
		}
		backlogs, err := a.cfg.Store.Backlogs(ctx, outbox.TenantRef{}, look.rows, look.most+1)
		if err != nil {
			return err
		}
		for id, b := range backlogs {
			w := byReason[reasons[id]]
			if w == nil {
				w = &waitingForView{Reason: reasons[id]}
				byReason[reasons[id]] = w
			}
			w.Endpoints++
			w.Pending += min(b.Pending, look.most)
			w.Capped = w.Capped || b.Pending > look.most
			if w.OldestAt == nil || b.Oldest.Before(time.Time(*w.OldestAt)) {
				w.OldestAt = stampOf(b.Oldest)
			}
			if oldest.IsZero() || b.Oldest.Before(oldest) {
				oldest = b.Oldest
			}
		}
	}
	for _, w := range byReason {
		view.Waiting = append(view.Waiting, *w)
	}
	slices.SortFunc(view.Waiting, func(x, y waitingForView) int {
		return cmp.Or(cmp.Compare(y.Pending, x.Pending), cmp.Compare(x.Reason, y.Reason))
	})
	view.OldestPendingAt = stampOf(oldest)
	return nil
}

// heldBack is what people have stopped.
type heldBack struct {
	endpoints map[outbox.EndpointID]waitReason
	tenants   map[outbox.TenantID]bool
}

func (h *heldBack) of(e outbox.EndpointID, t outbox.TenantID) waitReason {
	if h.tenants[t] {
		return waitPaused
	}
	return h.endpoints[e]
}

func (a *API) heldBack(ctx context.Context) (heldBack, error) {
	held := heldBack{endpoints: map[outbox.EndpointID]waitReason{}, tenants: map[outbox.TenantID]bool{}}
	for state, reason := range map[outbox.EndpointState]waitReason{outbox.EndpointPaused: waitPaused, outbox.EndpointDraft: waitPaused, outbox.EndpointDisabled: waitDisabled} {
		rows, err := a.cfg.Store.Endpoints(ctx, outbox.EndpointQuery{State: state}, outbox.Page{Limit: maxLimit})
		if err != nil {
			return held, err
		}
		for i := range rows {
			held.endpoints[rows[i].ID] = reason
		}
	}
	paused, err := a.cfg.Store.Tenants(ctx, outbox.TenantQuery{State: outbox.TenantPaused}, outbox.Page{Limit: maxLimit})
	for i := range paused {
		held.tenants[paused[i].ID] = true
	}
	return held, err
}
