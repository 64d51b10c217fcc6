package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// NoticeType names an operational event.
type NoticeType string

const (
	NoticeFailing   NoticeType = "endpoint.failing"   // its breaker opened
	NoticeRecovered NoticeType = "endpoint.recovered" // its breaker closed again
	NoticeDisabled  NoticeType = "endpoint.disabled"  // by the system
	NoticeDead      NoticeType = "delivery.dead"      // the first of an endpoint in an hour
	NoticeReplayed  NoticeType = "replay.finished"    // a replay of many deliveries, done or stopped
	// NoticeCertificate: the server's certificate ends within two weeks; once a day.
	NoticeCertificate NoticeType = "endpoint.certificate_expiring"
)

// Notice is something about an endpoint that its owner, or the operator, should hear of.
type Notice struct {
	Type     NoticeType
	At       time.Time
	Tenant   outbox.Tenant
	Endpoint outbox.Endpoint
	Since    time.Time          // when the trouble began
	Reason   outbox.FailureInfo // the latest failure
	Job      *outbox.Job        // of NoticeReplayed; its endpoint is the one the job is about, if any
}

// tell tells of something about an endpoint.
func (n *Node) tell(kind NoticeType, t *target, since time.Time, why outbox.FailureInfo) {
	if t.tenant.Key == outbox.OperatorTenant {
		return // it would be told about itself by itself
	}
	n.cfg.Notify(Notice{Type: kind, At: why.At, Tenant: *t.tenant, Endpoint: t.endpoint, Since: since, Reason: why})
}

// died tells of a delivery that ended undelivered without an attempt: it kills, or has nothing to
// send.
func (n *Node) died(w *work, r *outbox.Result) {
	if w.target != nil && w.due.Lane != outbox.LaneTest && r.Dead.State() == outbox.StateDead && n.deaths.first(w.due.Endpoint, r.At) {
		n.tell(NoticeDead, w.target, time.Time{}, outbox.FailureInfo{At: r.At, Kind: r.DeadKind, Message: r.DeadMessage})
	}
}

// expired tells of deliveries that waited too long. Those of an endpoint that is deleted are nobody's
// any more.
func (n *Node) expired(of []outbox.EndpointID, now time.Time) {
	for _, id := range of {
		n.mu.Lock()
		var t *target
		if e := n.sched.endpoints[id]; e != nil {
			t = e.target
		}
		n.mu.Unlock()
		if t != nil && n.deaths.first(id, now) {
			n.tell(NoticeDead, t, time.Time{}, outbox.FailureInfo{At: now, Message: outbox.ReasonExpired})
		}
	}
}

// follow acts on what an attempt's end means beyond its own delivery.
func (n *Node) follow(w *work, o *outbox.Attempt, r *outbox.Result, learned news) {
	t := w.target
	tell := func(kind NoticeType) {
		n.tell(kind, t, learned.since, outbox.FailureInfo{At: r.At, Kind: o.Kind, Message: o.Message, StatusCode: o.StatusCode})
	}
	switch learned.breaker {
	case outbox.BreakerOpen:
		tell(NoticeFailing)
	case outbox.BreakerClosed:
		tell(NoticeRecovered)
	}
	if r.Dead != "" && w.due.Lane != outbox.LaneTest && n.deaths.first(w.due.Endpoint, r.At) {
		tell(NoticeDead)
	}
	reason := outbox.StateReason{At: r.At, By: "system"}
	switch {
	case o.StatusCode == 410 && n.goneOnes.third(w.due.Endpoint, r.At):
		reason.Code, reason.Message = "gone", "The server answered 410 Gone three times in ten minutes."
	case learned.hopeless:
		reason.Code, reason.Message = "failing", "Nothing was delivered for five days."
	default:
		return
	}
	n.attempts.Go(func() {
		if n.disable(t, reason) {
			tell(NoticeDisabled)
		}
	})
}

// errChanged: an endpoint is not what it was when it was judged.
var errChanged = errors.New("the endpoint was changed meanwhile")

// jobEnded tells of a replay that has come to its end.
func (n *Node) jobEnded(j outbox.Job) {
	n.cfg.Log.Info("job ended", "job", j.Name(), "tenant", j.TenantKey, "state", j.State,
		"matched", j.Matched, "done", j.Done, "delivered", j.Delivered, "failed", j.Failed, "skipped", j.Skipped)
	n.mu.Lock()
	s := n.directory.tenants[j.Tenant.ID]
	notice := Notice{Type: NoticeReplayed, At: j.FinishedAt, Since: j.CreatedAt, Job: &j}
	if s != nil {
		notice.Tenant = s.tenant
		for _, e := range s.subscribers {
			if e.ID == j.Filter.Endpoint {
				notice.Endpoint = *e.Endpoint
			}
		}
	}
	n.mu.Unlock()
	if j.Type == outbox.JobReplay && s != nil && j.TenantKey != outbox.OperatorTenant {
		n.cfg.Notify(notice)
	}
}

// disable stops an endpoint nobody is behind, and reports whether it was this call that did. What
// is pending waits for a person.
func (n *Node) disable(t *target, reason outbox.StateReason) (done bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	by := &outbox.Author{Entry: outbox.AuditEntry{
		ID: outbox.NewAuditID(reason.At), Tenant: t.endpoint.Tenant, Actor: outbox.Actor{Kind: outbox.ActorSystem, Name: "dispatch"},
		Action: "endpoint.disable", Object: t.endpoint.ID.String(),
	}}
	_, err := n.cfg.Store.By(by).EditEndpoint(ctx, t.endpoint.Tenant, outbox.EndpointRef{ID: t.endpoint.ID}, reason.At,
		func(e *outbox.Endpoint) ([]outbox.Command, error) {
			// Somebody may have changed it since, and with it who is behind it.
			if done = e.State == outbox.EndpointActive && e.URL == t.endpoint.URL; !done {
				return nil, errChanged
			}
			before := *e
			e.State, e.StateReason = outbox.EndpointDisabled, &reason
			by.Entry.Changes = outbox.EndpointChanges(&before, e)
			by.Entry.Changes["state_reason"] = outbox.Change{To: reason.Code}
			return nil, nil
		})
	if err != nil && !errors.Is(err, outbox.ErrNotFound) && !errors.Is(err, errChanged) {
		n.cfg.Log.WarnContext(ctx, "cannot disable an endpoint", "endpoint", t.endpoint.ID, "reason", reason.Code, "error", err)
	}
	return done && err == nil
}

// certificateSoon is how long before a certificate ends its endpoint's owner hears of it.
const certificateSoon = 14 * 24 * time.Hour

// watchCertificate tells of a certificate that is about to end, while deliveries still arrive.
func (n *Node) watchCertificate(w *work, tried *attempt.Outcome, now time.Time) {
	until := tried.CertificateUntil
	if until.IsZero() || until.Sub(now) > certificateSoon || w.target.tenant.Key == outbox.OperatorTenant || !n.ending.first(w.due.Endpoint, now) {
		return
	}
	kind, message := attempt.CertificateEnds(w.target.endpoint.URL, until)
	n.cfg.Notify(Notice{
		Type:     NoticeCertificate,
		At:       now,
		Tenant:   *w.target.tenant,
		Endpoint: w.target.endpoint,
		Reason:   outbox.FailureInfo{At: now, Kind: kind, Message: message},
	})
}

// seldom lets the first of each endpoint in a while through.
type seldom struct {
	every time.Duration
	mu    sync.Mutex
	last  map[outbox.EndpointID]time.Time
}

func (h *seldom) first(id outbox.EndpointID, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, seen := h.last[id]; seen && now.Sub(last) < h.every {
		return false
	}
	if h.last == nil || len(h.last) > 10_000 { // forgetting costs a notice too many
		h.last = map[outbox.EndpointID]time.Time{}
	}
	h.last[id] = now
	return true
}
