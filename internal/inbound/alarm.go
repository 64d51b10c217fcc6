package inbound

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// rejectingType is the operational event of a source that refuses what it is sent.
const rejectingType = "source.rejecting"

// When the alarm is raised: within a minute more was refused than passed, and not only a little.
// Then not again for an hour.
const (
	alarmWindow = time.Minute
	alarmAfter  = 10
	alarmRest   = time.Hour
)

// alarm tells the operator of a source whose requests do not verify: a secret that was rotated at the
// provider and not here looks like silence otherwise.
type alarm struct {
	store   Store
	publish Publisher
	log     *slog.Logger

	mu      sync.Mutex
	sources map[string]*tally
}

type tally struct {
	began           time.Time // of the window
	refused, passed int
	since           time.Time // first refusal since something passed
	raised          time.Time
	total           int // refused since then
}

func newAlarm(store Store, publish Publisher, log *slog.Logger) *alarm {
	return &alarm{store: store, publish: publish, log: log, sources: map[string]*tally{}}
}

func (a *alarm) of(source string, now time.Time) *tally {
	t := a.sources[source]
	if t == nil {
		t = &tally{began: now}
		a.sources[source] = t
	}
	if now.Sub(t.began) >= alarmWindow {
		t.began, t.refused, t.passed = now, 0, 0
	}
	return t
}

// passed counts a request that verified.
func (a *alarm) passed(source string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of(source, now)
	t.passed++
	t.since, t.total = time.Time{}, 0
}

// refused counts one that did not, or that was put in quarantine for its payload, and raises the alarm
// when it is time to. status is what its sender was told.
func (a *alarm) refused(ctx context.Context, src *compiled, reason, detail string, status int, now time.Time) {
	a.mu.Lock()
	t := a.of(src.Name, now)
	t.refused++
	t.total++
	if t.since.IsZero() {
		t.since = now
	}
	due := t.refused >= alarmAfter && t.refused > t.passed && (t.raised.IsZero() || now.Sub(t.raised) >= alarmRest)
	if due {
		t.raised = now
	}
	notice := rejecting{
		Type: rejectingType, At: moment(now), Tenant: src.TenantKey,
		Source: rejectingSource{src.ID, src.Name, src.Provider},
		Reason: rejectingReason{reason, detail, status},
		Since:  moment(t.since), Rejected: t.total,
	}
	a.mu.Unlock()
	if !due {
		return
	}
	a.log.WarnContext(ctx, "a source refuses what it is sent", "source", src.Name, "reason", reason, "refused", notice.Rejected)
	// Beside the request: its sender is not kept waiting for the operator to be told.
	go a.tell(context.WithoutCancel(ctx), notice, now)
}

// rejecting is the payload of the operational event.
type rejecting struct {
	Type     string          `json:"type"`
	At       string          `json:"at"`
	Tenant   string          `json:"tenant"`
	Source   rejectingSource `json:"source"`
	Reason   rejectingReason `json:"reason"`
	Since    string          `json:"since"`
	Rejected int             `json:"rejected"`
}

type rejectingSource struct {
	ID       outbox.SourceID `json:"id"`
	Name     string          `json:"name"`
	Provider string          `json:"provider"`
}

type rejectingReason struct {
	Kind       string `json:"kind"`
	Message    string `json:"message"`
	StatusCode int    `json:"status_code"`
}

// tell publishes to the tenant the operator made for it. Without that tenant there is nobody to tell.
func (a *alarm) tell(ctx context.Context, notice rejecting, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := func() error {
		operator, err := a.store.Tenant(ctx, outbox.OperatorTenant)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(notice)
		if err != nil {
			return err
		}
		_, _, err = a.publish.Submit(ctx, []outbox.NewEvent{{Event: outbox.Event{
			ID: outbox.NewEventID(now), Tenant: operator.TenantRef, Type: rejectingType,
			Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
		}}})
		return err
	}()
	if err != nil && !errors.Is(err, outbox.ErrNotFound) {
		a.log.WarnContext(ctx, "cannot publish an operational event", "type", rejectingType, "error", err)
	}
}

// moment writes a time as the API does.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
