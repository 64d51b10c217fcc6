package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/traffic"
)

// Streams are Server-Sent Events. They are for looking on: nothing is acknowledged, and a reader
// that cannot keep up is told how much it missed instead of slowing anybody down.

// Feed hands on what the nodes do; *traffic.Feed.
type Feed interface {
	// Read begins to look on, at one tenant or (zero) all; false where too many do.
	Read(tenant outbox.TenantID) (*traffic.Reader, bool)
}

const (
	// heartbeatEvery keeps proxies from taking the silence for death, and is how soon a key that
	// was revoked stops being shown anything.
	heartbeatEvery = 10 * time.Second
	// writePatience is how long a reader may leave its window closed.
	writePatience = 10 * time.Second
	// maxResumed is how much of what was missed a reader that comes back is sent.
	maxResumed = 1_000
	// lookEvery is how often events are looked for that no node of this process routed.
	lookEvery = time.Second
)

// stream writes one reader's events.
type stream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

// streaming is the answer that runs until the reader goes, the key ends, or the server stops.
func (a *API) streaming(q *request, tenant outbox.TenantID, run func(ctx context.Context, s *stream, reader *traffic.Reader, beat <-chan time.Time) error) (*answer, error) {
	reader, free := a.cfg.Feed.Read(tenant)
	if !free {
		return nil, fail(CodeUnavailable, "too many look on already, or the server is stopping")
	}
	return &answer{status: http.StatusOK, stream: func(ctx context.Context, w http.ResponseWriter) {
		defer reader.Close()
		s := &stream{w: w, conn: http.NewResponseController(w)}
		_ = s.conn.SetReadDeadline(time.Time{}) // the server's is for requests that end
		h := w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		if s.comment("waybill") != nil {
			return
		}
		beat := time.NewTicker(heartbeatEvery)
		defer beat.Stop()
		if err := run(ctx, s, reader, beat.C); err != nil && ctx.Err() == nil {
			a.cfg.Log.DebugContext(ctx, "a stream ended", "request_id", q.id, "error", err)
		}
	}}, nil
}

func (s *stream) write(text string) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writePatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := s.conn.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (s *stream) comment(text string) error { return s.write(": " + text + "\n\n") }

// send writes one event. JSON has no line breaks of its own, so one data line holds it.
func (s *stream) send(kind, id string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write("event: " + kind + "\n" + id + "data: " + string(text) + "\n\n")
}

// place tells the reader where it stands before there is anything to show: a stream that is cut then
// goes on from here, and not from whenever it is opened again.
func (s *stream) place(id string) error { return s.write("id: " + id + "\n\n") }

// missedView tells a reader that it was too slow, or was away for too long.
type missedView struct {
	Missed int `json:"missed" doc:"At least so many were not shown"`
}

// still reports whether the key that the stream was opened with is still good for it. That the
// database does not answer for a moment says nothing about the key.
func (a *API) still(ctx context.Context, q *request) bool {
	who, err := a.holders.of(q.WithContext(ctx)) // the request's own time is over
	if err != nil {
		return problemOf(err).Status != http.StatusUnauthorized
	}
	return who.May(q.route.scope) && who.Tenant == q.who.Tenant
}

// seenAttemptView is an attempt as those who look on see it.
type seenAttemptView struct {
	ID         string         `json:"id"`
	Tenant     string         `json:"tenant"`
	DeliveryID string         `json:"delivery_id"`
	EventID    string         `json:"event_id"`
	EventType  string         `json:"event_type"`
	EndpointID string         `json:"endpoint_id"`
	URL        string         `json:"url"`
	N          int            `json:"n"`
	Trigger    outbox.Trigger `json:"trigger"`
	At         stamp          `json:"at"`
	DurationMS float64        `json:"duration_ms"`
	Outcome    outbox.Outcome `json:"outcome"`
	Kind       *outbox.Kind   `json:"kind"`
	Message    string         `json:"message"`
	StatusCode *int           `json:"status_code"`
}

func viewSeen(a *outbox.AttemptView) seenAttemptView {
	return seenAttemptView{
		ID: a.ID.String(), Tenant: a.TenantKey, DeliveryID: a.Delivery.String(), EventID: a.Event.String(), EventType: a.EventType,
		EndpointID: a.Endpoint.String(), URL: a.URL, N: a.N, Trigger: a.Trigger, At: stamp(a.At), DurationMS: millis(a.Duration),
		Outcome: a.Outcome, Kind: orNull(a.Kind), Message: a.Message, StatusCode: orNull(a.StatusCode),
	}
}

// tailFilter is which attempts somebody wants to see.
type tailFilter struct {
	tenant   outbox.Tenant // zero: all
	endpoint outbox.EndpointID
	types    []string
	outcomes []string
}

func (f *tailFilter) wants(a *outbox.AttemptView) bool {
	return (f.tenant.ID == 0 || a.Tenant.ID == f.tenant.ID) &&
		(f.endpoint.IsZero() || a.Endpoint == f.endpoint) &&
		oneOf(f.types, a.EventType) && oneOf(f.outcomes, string(a.Outcome))
}

func oneOf(wanted []string, value string) bool {
	for _, w := range wanted {
		if outbox.MatchEventType(w, value) {
			return true
		}
	}
	return len(wanted) == 0
}

// tail streams attempts as they end: event attempt; event missed where some could not be shown.
func (a *API) tail(q *request) (*answer, error) {
	p := q.params()
	filter := tailFilter{endpoint: id(p, "endpoint_id", outbox.ParseEndpointID), types: p.eventTypes(), outcomes: p.eachOf("outcome", "delivered", "transient", "permanent")}
	t, err := a.tenantParam(q, p)
	if err != nil {
		return nil, err
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if t != nil {
		filter.tenant = *t
	}
	from, resumes := readTailID(q.Header.Get("Last-Event-ID"))
	return a.streaming(q, filter.tenant.ID, func(ctx context.Context, s *stream, reader *traffic.Reader, beat <-chan time.Time) error {
		sent := map[outbox.AttemptID]bool{}
		if !resumes {
			here := outbox.AttemptView{Attempt: outbox.Attempt{ID: outbox.AttemptFloor(q.now), At: q.now}}
			if err := s.place(tailID(&here)); err != nil {
				return err
			}
		} else {
			from.Tenant = filter.tenant.TenantRef
			rows, err := a.cfg.Store.AttemptsEnded(ctx, from, maxResumed)
			if err != nil {
				return err
			}
			for i := range rows {
				sent[rows[i].ID] = true
				if filter.wants(&rows[i]) {
					if err := s.send("attempt", tailID(&rows[i]), viewSeen(&rows[i])); err != nil {
						return err
					}
				}
			}
			if len(rows) == maxResumed {
				if err := s.send("missed", "", missedView{1}); err != nil {
					return err
				}
			}
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-beat:
				if !a.still(ctx, q) {
					return nil
				}
				clear(sent) // what came in between has long been handed on
				if err := s.comment("beat"); err != nil {
					return err
				}
			case attempt, open := <-reader.Attempts:
				if !open {
					return nil
				}
				if sent[attempt.ID] || !filter.wants(&attempt) {
					continue
				}
				if err := s.send("attempt", tailID(&attempt), viewSeen(&attempt)); err != nil {
					return err
				}
			}
			if n := reader.Missed(); n > 0 {
				if err := s.send("missed", "", missedView{n}); err != nil {
					return err
				}
			}
		}
	})
}

// tailID is an attempt's place in the stream: when it ended, in microseconds, and its id.
func tailID(a *outbox.AttemptView) string {
	return fmt.Sprintf("%d-%s", a.At.Add(a.Duration).UnixMicro(), a.ID)
}

// readTailID reads the place somebody has come to; one that cannot be read is none.
func readTailID(text string) (outbox.EndedQuery, bool) {
	micros, attempt, _ := strings.Cut(text, "-")
	n, err := strconv.ParseInt(micros, 10, 64)
	last, idErr := outbox.ParseAttemptID(attempt)
	if err != nil || idErr != nil {
		return outbox.EndedQuery{}, false
	}
	return outbox.EndedQuery{After: time.UnixMicro(n).UTC(), AfterID: last}, true
}

// heardEventView is an event as those who listen get it.
type heardEventView struct {
	eventView
	PayloadBase64 string `json:"payload_base64" doc:"The published bytes"`
}

// listen streams a tenant's events as they are accepted, for a developer's machine: event event.
func (a *API) listen(q *request) (*answer, error) {
	p := q.params()
	types := p.eventTypes()
	if err := p.err(); err != nil {
		return nil, err
	}
	l := listening{a: a, q: q, types: types, seen: map[outbox.EventID]bool{}}
	from, err := outbox.ParseEventID(q.Header.Get("Last-Event-ID"))
	if err != nil {
		// Before the answer begins: what is published once the caller sees it is new.
		if err := l.passOver(q.Context()); err != nil {
			return nil, err
		}
	}
	return a.streaming(q, q.tenant.ID, func(ctx context.Context, s *stream, reader *traffic.Reader, beat <-chan time.Time) error {
		l.s = s
		if err := l.begin(ctx, from); err != nil {
			return err
		}
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			var err error
			select {
			case <-ctx.Done():
				return nil
			case <-beat:
				if !a.still(ctx, q) {
					return nil
				}
				err = s.comment("beat")
			case routed, open := <-reader.Routed:
				if !open {
					return nil
				}
				err = l.hear(ctx, routed.Event)
			case <-tick.C:
				err = l.look(ctx)
			}
			if err != nil {
				return err
			}
		}
	})
}

// listening is one listener. Events become visible out of the order of their ids: each look goes
// back a little, and what was heard is remembered for as long.
type listening struct {
	a     *API
	q     *request
	s     *stream
	types []string
	seen  map[outbox.EventID]bool
	last  outbox.EventID // the highest heard
}

// overlap is how long a publisher's transaction may stay open and its event still be heard.
const overlap = 10 * time.Second

// passOver notes what is there already.
func (l *listening) passOver(ctx context.Context) error {
	l.last = outbox.EventFloor(l.q.now)
	ids, err := l.a.cfg.Store.EventsAfter(ctx, l.q.tenant.TenantRef, outbox.EventFloor(l.q.now.Add(-overlap)), maxResumed)
	for _, id := range ids {
		l.seen[id] = true
	}
	return err
}

// begin goes on after the given event, or after what was passed over.
func (l *listening) begin(ctx context.Context, from outbox.EventID) error {
	if from.IsZero() {
		return l.s.place(l.last.String())
	}
	l.last = from
	return l.lookAfter(ctx, from)
}

func (l *listening) look(ctx context.Context) error {
	from := outbox.EventFloor(l.last.Time().Add(-overlap))
	for id := range l.seen {
		if id.Time().Before(from.Time().Add(-overlap)) {
			delete(l.seen, id)
		}
	}
	return l.lookAfter(ctx, from)
}

func (l *listening) lookAfter(ctx context.Context, from outbox.EventID) error {
	ids, err := l.a.cfg.Store.EventsAfter(ctx, l.q.tenant.TenantRef, from, maxResumed)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := l.hear(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// hear sends an event that was not sent yet. Its place in the stream is the highest id so far, so
// that a late one does not bring everything after it once more.
func (l *listening) hear(ctx context.Context, id outbox.EventID) error {
	if l.seen[id] {
		return nil
	}
	l.seen[id] = true
	if string(id[:]) > string(l.last[:]) {
		l.last = id
	}
	e, err := l.a.cfg.Store.Event(ctx, l.q.tenant.TenantRef, id)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil
	}
	if err != nil || !oneOf(l.types, e.Type) {
		return err
	}
	payload, err := l.a.cfg.Store.Payload(ctx, l.q.tenant.TenantRef, id)
	if errors.Is(err, outbox.ErrPayloadGone) || errors.Is(err, outbox.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.s.send("event", l.last.String(), heardEventView{viewEvent(&e), base64.StdEncoding.EncodeToString(payload)})
}
