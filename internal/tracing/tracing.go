// Package tracing writes OpenTelemetry spans of an event's way: accepted, routed, attempted. It is
// off unless an OTLP endpoint is configured by OpenTelemetry's own variables
// (OTEL_EXPORTER_OTLP_ENDPOINT and the like; sampling by OTEL_TRACES_SAMPLER).
//
// The trace of an event is its id, see outbox.TraceParent: nothing is stored, and an event written
// by SQL has a trace as well. Spans are made from facts when these are durable, not around the
// code that makes them, so the hot path knows nothing of it.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Configured reports whether the environment asks for traces.
func Configured(getenv func(string) string) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Tracer makes spans and sends them in the background. What cannot be sent in time is dropped:
// traces never delay deliveries.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New makes a tracer that exports to where OpenTelemetry's variables say. It does not connect.
func New(ctx context.Context, version string) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return with(ctx, version, sdk.WithBatcher(exporter))
}

func with(ctx context.Context, version string, options ...sdk.TracerProviderOption) (*Tracer, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "waybill"), attribute.String("service.version", version)),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	provider := sdk.NewTracerProvider(append(options, sdk.WithResource(about), sdk.WithIDGenerator(ids{}))...)
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/waybill-dev/waybill")}, nil
}

// Close sends what is left.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// root is the parent of all spans of an event: its acceptance.
func root(event outbox.EventID) trace.SpanContext {
	digest := sha256.Sum256(event[:])
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID(event),
		SpanID:     trace.SpanID(digest[:8]),
		TraceFlags: trace.FlagsSampled,
	})
}

// spanID is how the id of the next span is handed to the generator.
type spanID struct{}

// ids gives spans the ids that are theirs by what they are about.
type ids struct{}

// NewIDs implements sdk.IDGenerator for a span without a parent: the acceptance.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	own, ok := ctx.Value(spanID{}).(trace.SpanContext)
	if ok {
		return own.TraceID(), own.SpanID()
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id, random()
}

// NewSpanID implements sdk.IDGenerator for a span with a parent.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if own, ok := ctx.Value(spanID{}).(trace.SpanContext); ok {
		return own.SpanID()
	}
	return random()
}

func random() trace.SpanID {
	var id trace.SpanID
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	return id
}

// accepted is the root span of an event that has just become durable.
func (t *Tracer) accepted(e *outbox.NewEvent, began, ended time.Time) {
	ctx := context.WithValue(context.Background(), spanID{}, root(e.ID))
	_, span := t.tracer.Start(ctx, "accept", trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("waybill.event.id", e.ID.String()),
		attribute.String("waybill.event.type", e.Type),
		attribute.Int("waybill.payload.bytes", len(e.Payload)),
	))
	span.End(trace.WithTimestamp(ended))
}

// routed is the planning of an event's deliveries.
func (t *Tracer) routed(p *outbox.Plan, began, ended time.Time) {
	_, span := t.below(p.Row.Event, "route", began, trace.SpanKindInternal, nil,
		attribute.Int("waybill.deliveries", len(p.Deliveries)))
	span.End(trace.WithTimestamp(ended))
}

// attempted is one try.
func (t *Tracer) attempted(r *outbox.Result) {
	a := r.Attempt
	own := trace.NewSpanContext(trace.SpanContextConfig{SpanID: trace.SpanID(a.ID[8:])})
	attributes := []attribute.KeyValue{
		attribute.String("waybill.delivery.id", r.Delivery.ID.String()),
		attribute.String("waybill.endpoint.id", r.Delivery.Endpoint.String()),
		attribute.Int("waybill.attempt", r.Delivery.Attempt+1),
		attribute.String("waybill.outcome", string(a.Outcome)),
	}
	if a.StatusCode != 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", a.StatusCode))
	}
	if a.Kind != "" {
		attributes = append(attributes, attribute.String("error.type", string(a.Kind)))
	}
	_, span := t.below(r.Delivery.Event, "attempt", a.At, trace.SpanKindClient, &own, attributes...)
	if a.Outcome != outbox.OutcomeDelivered {
		span.SetStatus(codes.Error, string(a.Kind))
	}
	span.End(trace.WithTimestamp(a.At.Add(a.Duration)))
}

func (t *Tracer) below(event outbox.EventID, name string, began time.Time, kind trace.SpanKind, own *trace.SpanContext, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), root(event))
	if own != nil {
		ctx = context.WithValue(ctx, spanID{}, *own)
	}
	return t.tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}
