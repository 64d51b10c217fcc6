package tracing

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// database takes everything, or fails.
type database struct {
	outbox.Store
	err error
}

func (d *database) InsertEvents(_ context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	accepted := make([]outbox.Accepted, len(batch))
	accepted[len(batch)-1].Duplicate = true
	return accepted, nil, d.err
}

func (d *database) Route(context.Context, outbox.Lease, []outbox.Plan, map[outbox.EndpointID]int64, time.Time) (outbox.Routed, error) {
	return outbox.Routed{}, d.err
}

func (d *database) Finish(context.Context, []outbox.Result) (outbox.Finished, error) {
	return outbox.Finished{}, d.err
}

// An event, its planning and its attempts are one trace, which the receiver is told of.
func TestTraced_anEventIsOneTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer, err := with(t.Context(), "1.2.3", sdk.WithSpanProcessor(recorder))
	if err != nil {
		t.Fatal(err)
	}
	db := &database{}
	store := Trace(db, tracer)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	event := outbox.NewEventID(now)
	attempt := &outbox.Attempt{ID: outbox.NewAttemptID(now), At: now, Duration: 30 * time.Millisecond, Outcome: outbox.OutcomeTransient, Kind: outbox.KindHTTPStatus, StatusCode: 503}
	run := func() {
		ctx := t.Context()
		store.InsertEvents(ctx, []outbox.NewEvent{{Event: outbox.Event{ID: event, Type: "order.paid"}}, {Event: outbox.Event{ID: outbox.NewEventID(now)}}})
		store.Route(ctx, outbox.Lease{}, []outbox.Plan{{Row: outbox.OutboxRow{Event: event}}}, nil, now)
		store.Finish(ctx, []outbox.Result{{Delivery: outbox.Delivery{Event: event}, Attempt: attempt}, {Delivery: outbox.Delivery{Event: event}, Dead: outbox.DeadCancelled}})
	}
	db.err = errors.New("away")
	run()
	if n := len(recorder.Ended()); n != 0 {
		t.Fatalf("%d spans of what did not happen", n)
	}
	db.err = nil
	run()

	spans := recorder.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans, want accept, route and attempt", len(spans))
	}
	accept, route, try := spans[0], spans[1], spans[2]
	for i, want := range []string{"accept", "route", "attempt"} {
		if spans[i].Name() != want || spans[i].SpanContext().TraceID() != trace.TraceID(event) {
			t.Errorf("span %d is %s of trace %s, want %s of %x", i, spans[i].Name(), spans[i].SpanContext().TraceID(), want, event)
		}
	}
	for _, below := range []sdk.ReadOnlySpan{route, try} {
		if below.Parent().SpanID() != accept.SpanContext().SpanID() {
			t.Errorf("%s stands below %s, want below the acceptance", below.Name(), below.Parent().SpanID())
		}
	}
	if took := try.EndTime().Sub(try.StartTime()); took != attempt.Duration || !try.StartTime().Equal(now) {
		t.Errorf("the attempt was at %v for %v", try.StartTime(), took)
	}
	// The header by the specification: version, trace, span, flags.
	parts := strings.Split(outbox.TraceParent(event, attempt.ID), "-")
	if len(parts) != 4 || parts[0] != "00" || parts[3] != "01" ||
		parts[1] != hex.EncodeToString(event[:]) || parts[2] != try.SpanContext().SpanID().String() {
		t.Errorf("the receiver is told %v, the attempt's span is %s", parts, try.SpanContext().SpanID())
	}
}

func TestConfigured_onlyByAnEndpoint(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_SERVICE_NAME": "x"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := Configured(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}
