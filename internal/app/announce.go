package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// announcer publishes operational events to the tenant the operator made for them, through the
// pipeline everything else goes through. Without that tenant there is nobody to tell.
type announcer struct {
	store   outbox.Store
	publish interface {
		Submit(ctx context.Context, events []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error)
	}
	clock   *outbox.Clock
	log     *slog.Logger
	notices chan dispatch.Notice
}

const (
	// maxNotices wait at once; what does not fit is in the log, and in the endpoints' health.
	maxNotices = 1000
	// countUpTo bounds what is counted for a notice.
	countUpTo = 10_000
)

// notify takes a notice without waiting.
func (n *announcer) notify(notice dispatch.Notice) {
	n.log.Info("notice", "type", notice.Type, "tenant", notice.Tenant.Key, "endpoint", notice.Endpoint.ID,
		"kind", notice.Reason.Kind, "status", notice.Reason.StatusCode)
	select {
	case n.notices <- notice:
	default:
		n.log.Warn("too many notices at once; one is dropped", "type", notice.Type, "endpoint", notice.Endpoint.ID)
	}
}

// run publishes notices until ctx ends.
func (n *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case notice := <-n.notices:
			if err := n.announce(ctx, notice); err != nil && ctx.Err() == nil {
				n.log.WarnContext(ctx, "cannot publish an operational event", "type", notice.Type, "error", err)
			}
		}
	}
}

// announcement is the payload of an operational event.
type announcement struct {
	Type     dispatch.NoticeType `json:"type"`
	At       string              `json:"at"`
	Tenant   string              `json:"tenant"`
	Endpoint *announcedEndpoint  `json:"endpoint"` // null where it is about several
	Reason   announcedReason     `json:"reason"`
	Since    *string             `json:"since"`
	Pending  int                 `json:"pending"` // of the endpoint, at most 10,000
	Dead     int                 `json:"dead"`    // likewise
	// PortalPath is where the customer's portal shows it: the path of a portal session.
	PortalPath string        `json:"portal_path"`
	Job        *announcedJob `json:"job,omitempty"`
}

// announcedJob is a replay that has ended.
type announcedJob struct {
	ID        string          `json:"id"`
	State     outbox.JobState `json:"state"`
	Matched   int64           `json:"matched"`
	Done      int64           `json:"done"`
	Delivered int64           `json:"delivered"`
	Failed    int64           `json:"failed"`
	Skipped   int64           `json:"skipped"`
	CreatedBy string          `json:"created_by"`
}

type announcedEndpoint struct {
	ID          outbox.EndpointID `json:"id"`
	UID         *string           `json:"uid"`
	URL         string            `json:"url"`
	Description string            `json:"description"`
}

type announcedReason struct {
	Kind       *string `json:"kind"`
	Message    *string `json:"message"`
	StatusCode *int    `json:"status_code"`
}

func (n *announcer) announce(ctx context.Context, notice dispatch.Notice) error {
	operator, err := n.store.Tenant(ctx, outbox.OperatorTenant)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	said, err := n.describe(ctx, notice)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(said)
	if err != nil {
		return err
	}
	now := n.clock.Now()
	_, _, err = n.publish.Submit(ctx, []outbox.NewEvent{{Event: outbox.Event{
		ID:        outbox.NewEventID(now),
		Tenant:    operator.TenantRef,
		Type:      string(notice.Type),
		Payload:   payload,
		SHA256:    sha256.Sum256(payload),
		CreatedAt: now,
	}}})
	return err
}

// describe is a notice as the operator is told it.
func (n *announcer) describe(ctx context.Context, notice dispatch.Notice) (announcement, error) {
	said := announcement{
		Type:   notice.Type,
		At:     moment(notice.At),
		Tenant: notice.Tenant.Key,
		Reason: announcedReason{
			Kind:       orNull(string(notice.Reason.Kind)),
			Message:    orNull(notice.Reason.Message),
			StatusCode: orNull(notice.Reason.StatusCode),
		},
		Since:      orNull(moment(notice.Since)),
		PortalPath: "recover",
	}
	if j := notice.Job; j != nil {
		said.PortalPath = "recover/" + j.Name()
		said.Job = &announcedJob{
			ID: j.Name(), State: j.State, Matched: j.Matched, Done: j.Done,
			Delivered: j.Delivered, Failed: j.Failed, Skipped: j.Skipped, CreatedBy: j.CreatedBy,
		}
	}
	e := &notice.Endpoint
	if e.ID.IsZero() {
		return said, nil
	}
	said.Endpoint = &announcedEndpoint{ID: e.ID, UID: orNull(e.UID), URL: e.URL, Description: e.Description}
	if notice.Job == nil {
		said.PortalPath = "endpoints/" + e.ID.String()
	}
	var err error
	if said.Pending, _, err = n.store.PendingOf(ctx, notice.Tenant.TenantRef, e.ID, countUpTo); err != nil {
		return said, err
	}
	dead, capped, err := n.store.CountJob(ctx, outbox.Job{
		Type: outbox.JobReplay, Tenant: notice.Tenant.TenantRef, CreatedAt: n.clock.Now(),
		Filter: outbox.JobFilter{Endpoint: e.ID, State: outbox.ReplayDead},
	}, countUpTo)
	if said.Dead = dead; capped {
		said.Dead = countUpTo
	}
	return said, err
}

// moment writes a time as the API does; "" for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// orNull returns nil for a zero value, so that JSON says null.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
