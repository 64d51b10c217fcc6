package inbound

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive"
)

// Store is what the gateway needs of the database.
type Store interface {
	Source(ctx context.Context, name string) (outbox.Source, error)
	RecordRequests(ctx context.Context, requests []outbox.InboundRequest) error
	Quarantine(ctx context.Context, requests []outbox.InboundRequest) ([]outbox.Quarantined, error)
	Tenant(ctx context.Context, key string) (outbox.Tenant, error)
}

// Publisher makes events durable; internal/publish.
type Publisher interface {
	Submit(ctx context.Context, events []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error)
}

// Config says what the gateway stands on. Store and Publisher are required; every other field's
// zero value is usable.
type Config struct {
	Store     Store
	Publisher Publisher
	Clock     *outbox.Clock // database time; nil: the wall clock
	Log       *slog.Logger
	// Client fetches the certificates PayPal's requests name; nil: they do not verify.
	Client   *http.Client
	Registry *prometheus.Registry // nil: nobody looks
	// Catalogue holds events to the schemas of their types; nil: nothing is held to any.
	Catalogue Catalogue
}

// Catalogue judges payloads by the schemas of their types; internal/catalogue.
type Catalogue interface {
	Check(ctx context.Context, eventType string, payload []byte, now time.Time) (catalogue.Verdict, error)
}

// Gateway serves /in/{source}. It is safe for concurrent use.
type Gateway struct {
	cfg     Config
	sources *sources
	log     *requestLog
	alarm   *alarm
	metrics *metrics
}

// New makes a gateway. Run writes down what it has seen.
func New(cfg Config) *Gateway {
	if cfg.Clock == nil {
		cfg.Clock = &outbox.Clock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	return &Gateway{
		cfg:     cfg,
		sources: newSources(cfg.Store, cfg.Client),
		log:     newRequestLog(cfg.Store, cfg.Log),
		alarm:   newAlarm(cfg.Store, cfg.Publisher, cfg.Log),
		metrics: newMetrics(cfg.Registry),
	}
}

// Run writes down samples of what was refused and repeated, until ctx ends.
func (g *Gateway) Run(ctx context.Context) { g.log.run(ctx) }

// Forget drops what is known of a source that this process has changed.
func (g *Gateway) Forget(name string) { g.sources.forget(name) }

// Budget of the store for one request. Half of the provider's patience is the network's.
const mostBudget = 2 * time.Second

func budget(p *receive.Provider) time.Duration {
	if p.Timeout == 0 {
		return mostBudget
	}
	return min(mostBudget, p.Timeout/2)
}

// ServeHTTP answers one request to /in/{source}.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	name := r.PathValue("source")
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	src, err := g.sources.get(r.Context(), name)
	if err != nil {
		g.unknown(w, r, name, err)
		return
	}
	outcome := g.serve(w, r, src)
	g.metrics.answered(src.Provider, outcome, time.Since(began))
}

// unknown answers for a source that is not there, or cannot be looked up.
func (g *Gateway) unknown(w http.ResponseWriter, r *http.Request, name string, err error) {
	if errors.Is(err, outbox.ErrNotFound) {
		g.metrics.answered("unknown", "unknown_source", 0)
		refuse(w, http.StatusNotFound, notFound)
		return
	}
	g.metrics.answered("unknown", receive.Failed, 0)
	g.cfg.Log.WarnContext(r.Context(), "a source cannot be looked up", "source", name, "error", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, unavailable)
}

// serve answers for a known source and says how it went.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, src *compiled) string {
	if src.broken != nil {
		// Stored by another version, or by hand. The provider keeps its events meanwhile.
		g.cfg.Log.WarnContext(r.Context(), "a source cannot be used", "source", src.Name, "error", src.broken)
		return g.later(w, src, 60)
	}
	if src.State == outbox.SourcePaused {
		return g.later(w, src, 60)
	}
	now := g.cfg.Clock.Now()
	a := src.intake.Read(w, r, now)
	if len(a.Records) == 0 {
		g.refused(r.Context(), src, &a, r.ContentLength, now)
		src.decline(w, &a)
		return a.Outcome
	}
	if src.TenantKey == "" {
		g.cfg.Log.WarnContext(r.Context(), "a source's tenant is deleted", "source", src.Name)
		return g.later(w, src, 60)
	}
	outcome, err := g.accept(r.Context(), src, a.Records, now)
	if err != nil {
		g.cfg.Log.WarnContext(r.Context(), "a webhook cannot be stored; its provider is told to come back", "source", src.Name, "error", err)
		return g.later(w, src, 1)
	}
	if outcome != Quarantined { // which the alarm was told of
		g.alarm.passed(src.Name, now)
	}
	receive.Reply{Status: src.codes.OK}.Send(w)
	return outcome
}

// later answers with the code after which the provider tries again.
func (g *Gateway) later(w http.ResponseWriter, src *compiled, seconds int) string {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuse(w, src.codes.Failed, unavailable)
	return receive.Failed
}

// accept stores the events, or finds them stored.
func (g *Gateway) accept(ctx context.Context, src *compiled, records []receive.Record, now time.Time) (string, error) {
	// Whether the provider still listens makes no difference: what is begun is brought to its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget(&src.provider))
	defer cancel()
	events := make([]outbox.NewEvent, 0, len(records))
	stored := make([]*receive.Record, 0, len(records))
	var quarantined []outbox.InboundRequest
	for i := range records {
		r := &records[i]
		event := src.event(r, now)
		detail, err := g.against(ctx, &event, now)
		if err != nil {
			return "", err
		}
		if detail != "" {
			quarantined = append(quarantined, src.quarantine(r, &event, outbox.QuarantinedSchema, detail, now))
			continue
		}
		events, stored = append(events, event), append(stored, r)
	}
	outcome, kept, err := g.submit(ctx, src, stored, events, now)
	if err != nil {
		return "", err
	}
	if quarantined = append(quarantined, kept...); len(quarantined) == 0 {
		return outcome, nil
	}
	met, err := g.cfg.Store.Quarantine(ctx, quarantined)
	if err != nil {
		return "", err
	}
	var waits *outbox.InboundRequest // the first that does
	for i := range quarantined {
		q := &quarantined[i]
		if !met[i].Event.IsZero() { // it was released, and this is its provider's repeat
			g.log.add(outbox.InboundRequest{
				ID: q.ID, Source: q.Source, Shard: q.Shard, Outcome: outbox.InboundDuplicate,
				ProviderID: q.ProviderID, Topic: q.Topic, Event: met[i].Event, Digest: q.Digest, Bytes: q.Bytes,
			})
			continue
		}
		if waits == nil {
			waits = q
		}
		if !met[i].Repeat {
			g.cfg.Log.WarnContext(ctx, "a webhook is kept in quarantine", "source", src.Name, "reason", q.Reason, "id", q.ProviderID, "request", q.ID)
		}
	}
	switch {
	case waits == nil && outcome == "":
		return receive.Duplicate, nil
	case waits == nil:
		return outcome, nil
	case waits.Reason == outbox.QuarantinedSchema:
		g.alarm.refused(ctx, src, waits.Reason, waits.Detail, src.codes.OK, now)
		return Quarantined, nil
	}
	return receive.OtherBody, nil
}

// against says why an event's type refuses it, or "". Its schema may be read from the database.
func (g *Gateway) against(ctx context.Context, e *outbox.NewEvent, now time.Time) (string, error) {
	if g.cfg.Catalogue == nil {
		return "", nil
	}
	verdict, err := g.cfg.Catalogue.Check(ctx, e.Type, e.Payload, now)
	if err != nil || !verdict.Refused {
		return "", err
	}
	p := verdict.Problems[0]
	return e.Type + ": " + p.Path + ": " + p.Detail, nil
}

// submit stores events, or finds them stored; kept are those whose id came with another body before.
func (g *Gateway) submit(ctx context.Context, src *compiled, records []*receive.Record, events []outbox.NewEvent, now time.Time) (outcome string, kept []outbox.InboundRequest, err error) {
	if len(events) == 0 {
		return "", nil, nil
	}
	accepted, conflicts, err := g.cfg.Publisher.Submit(ctx, events)
	if err == nil && len(conflicts) > 0 {
		err = conflicts[0].Err
	}
	if err != nil {
		return "", nil, err
	}
	outcome = receive.Duplicate
	for i, one := range accepted {
		switch {
		case !one.Duplicate:
			outcome = receive.Stored
		case one.OtherBody:
			q := src.quarantine(records[i], &events[i], outbox.QuarantinedOtherBody, "the event "+one.ID.String()+" came under this id with another body", now)
			q.Event = one.ID
			kept = append(kept, q)
		default:
			g.log.add(src.request(outbox.InboundDuplicate, records[i], one.ID, now))
		}
	}
	return outcome, kept, nil
}

// event is what a record becomes.
func (s *compiled) event(r *receive.Record, now time.Time) outbox.NewEvent {
	e := outbox.NewEvent{
		Event: outbox.Event{
			ID:        outbox.NewEventID(now),
			Tenant:    s.Tenant,
			Type:      eventType(&s.Source, r.Topic),
			Metadata:  s.metadata(r),
			Payload:   r.Body,
			SHA256:    sha256.Sum256(r.Body),
			CreatedAt: now,
		},
		Inbound: &outbox.Inbound{
			Source:     s.ID,
			Shard:      outbox.SourceShard(s.Name),
			Key:        r.Key.Hash(),
			Digest:     r.Digest,
			ProviderID: r.Key.ID,
			Topic:      r.Topic,
		},
	}
	if r.Key.ID == "" {
		e.Inbound.Window = s.receiving.BodyIsID
	}
	return e
}

// metadata says where an event is from, and carries the headers that go on with it.
func (s *compiled) metadata(r *receive.Record) map[string]string {
	m := map[string]string{"source": s.Name}
	if r.Key.ID != "" {
		m["source_id"] = r.Key.ID
	}
	for _, name := range s.forward {
		if lines := r.Header[name]; len(lines) > 0 {
			m[outbox.HeaderMetadata+name] = strings.Join(lines, ", ")
		}
	}
	return m
}

// request is the record of what became of a request.
func (s *compiled) request(outcome outbox.InboundOutcome, r *receive.Record, event outbox.EventID, now time.Time) outbox.InboundRequest {
	return outbox.InboundRequest{
		ID: outbox.NewInboundID(now), Source: s.ID, Shard: outbox.SourceShard(s.Name), Outcome: outcome,
		ProviderID: r.Key.ID, Topic: r.Topic, Event: event, Digest: r.Digest, Bytes: len(r.Body),
	}
}

// refused keeps a sample of what did not verify, and raises the alarm when there is much of it.
func (g *Gateway) refused(ctx context.Context, src *compiled, a *receive.Arrival, length int64, now time.Time) {
	switch a.Outcome {
	case receive.Rejected, receive.TooLarge:
	default:
		return // a handshake, or a topic nobody wants
	}
	g.metrics.refused(a.Reason)
	detail := ""
	if a.Err != nil {
		detail = strings.TrimPrefix(strings.TrimPrefix(a.Err.Error(), "signature: "), "receive: ")
	}
	g.log.add(outbox.InboundRequest{
		ID: outbox.NewInboundID(now), Source: src.ID, Shard: outbox.SourceShard(src.Name), Outcome: outbox.InboundRejected,
		Reason: a.Reason, Detail: detail, Bytes: int(max(length, 0)),
	})
	g.alarm.refused(ctx, src, a.Reason, detail, a.Answer.Status, now)
}
