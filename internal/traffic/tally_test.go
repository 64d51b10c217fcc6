package traffic

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// book is a store of figures that may fail.
type book struct {
	rows []outbox.Traffic
	err  error
}

func (b *book) AddTraffic(_ context.Context, rows []outbox.Traffic) error {
	if b.err == nil {
		b.rows = append(b.rows, rows...)
	}
	return b.err
}

func (b *book) TrafficOf(_ context.Context, q outbox.TrafficQuery) ([]outbox.Traffic, error) {
	var found []outbox.Traffic
	for _, r := range b.rows {
		if r.Tenant == q.Tenant.ID && r.Endpoint == q.Endpoint {
			found = append(found, r)
		}
	}
	return found, nil
}

var (
	noon   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	theEnd = outbox.TrafficQuery{From: noon.Add(-time.Hour), To: noon.Add(time.Hour)}
)

// happened tells of one event that was tried twice: 503, then 200.
func happened(t *Tally) {
	event := outbox.NewEventID(noon)
	d := outbox.Delivery{Tenant: 7, Endpoint: outbox.NewEndpointID(noon), Event: event}
	t.Routed([]outbox.Plan{{Row: outbox.OutboxRow{Tenant: 7, Event: event, Source: &outbox.Event{}}, Deliveries: []outbox.Delivery{d}, Matched: true, Last: true}}, noon)
	try := func(n int, outcome outbox.Outcome, after, took time.Duration) {
		d.Attempt = n
		t.Recorded([]outbox.Recorded{{
			Published: noon,
			Result: outbox.Result{
				Delivery: d, Delivered: outcome == outbox.OutcomeDelivered, At: noon.Add(after + took),
				Attempt: &outbox.Attempt{Outcome: outcome, At: noon.Add(after), Duration: took},
			},
		}})
	}
	try(0, outbox.OutcomeTransient, 10*time.Millisecond, 100*time.Millisecond)
	try(1, outbox.OutcomeDelivered, 2*time.Second, 300*time.Millisecond)
}

// sums asks for all of it.
func sums(t *testing.T, tally *Tally, q outbox.TrafficQuery) outbox.Counts {
	t.Helper()
	rows, err := tally.Of(t.Context(), q, 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var all outbox.Counts
	for i := range rows {
		all.Add(&rows[i].Counts)
	}
	return all
}

func near(t *testing.T, what string, l outbox.Latencies, q float64, want time.Duration) {
	t.Helper()
	got, ok := l.Quantile(q)
	if !ok || got < want || got > want*108/100 {
		t.Errorf("%s: %v, want %v within 8 %%", what, got, want)
	}
}

func TestTally_countsWhatHappenedOnceWhereverItIs(t *testing.T) {
	store := &book{}
	tally := NewTally(store, slog.New(slog.DiscardHandler))
	happened(tally)
	check := func(when string) {
		t.Helper()
		of7 := theEnd
		of7.Tenant.ID = 7
		for name, q := range map[string]outbox.TrafficQuery{"all": theEnd, "the tenant's": of7} {
			c := sums(t, tally, q)
			if c.Published != 1 || c.Planned != 1 || c.Unmatched != 0 || c.Delivered != 1 || c.Failed != 0 || c.Transient != 1 || c.Succeeded != 1 || c.Attempts() != 2 {
				t.Errorf("%s, %s: %+v", when, name, c)
			}
			near(t, when+": the first attempt", c.First, 1, 10*time.Millisecond)
			near(t, when+": the slower answer", c.Answer, 1, 300*time.Millisecond)
			near(t, when+": the quicker answer", c.Answer, 0.5, 100*time.Millisecond)
			near(t, when+": the delivery", c.Arrived, 0.5, 2300*time.Millisecond)
			if rate, _ := c.SuccessRate(); rate != 0.5 {
				t.Errorf("%s: success rate %v", when, rate)
			}
		}
	}
	check("before it is written")
	if err := tally.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(store.rows) == 0 {
		t.Fatal("nothing was written")
	}
	check("after it is written")
}

func TestTally_whatWasSurelyNotWrittenIsTriedAgain(t *testing.T) {
	store := &book{err: &outbox.WriteError{Fault: outbox.FaultRetry, Err: errors.New("away")}}
	tally := NewTally(store, slog.New(slog.DiscardHandler))
	happened(tally)
	if tally.flush(t.Context()) == nil {
		t.Fatal("no error")
	}
	happened(tally)
	store.err = nil
	if err := tally.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := sums(t, tally, theEnd); c.Published != 2 {
		t.Errorf("%d events, want 2", c.Published)
	}
	store.err = &outbox.WriteError{Fault: outbox.FaultUnknown, Err: errors.New("cut off")}
	happened(tally)
	if tally.flush(t.Context()) == nil {
		t.Fatal("no error")
	}
	if c := sums(t, tally, theEnd); c.Published != 2 {
		t.Errorf("%d events: what may have been written is shown twice", c.Published)
	}
}

func TestFeed_showsEachReaderItsOwnTenantAlone(t *testing.T) {
	feed := NewFeed()
	all, _ := feed.Read(0)
	seven, _ := feed.Read(7)
	tell := func(tenant outbox.TenantID) {
		feed.Recorded([]outbox.Recorded{{Result: outbox.Result{
			Delivery: outbox.Delivery{Tenant: tenant}, Attempt: &outbox.Attempt{ResponseBody: []byte("private"), ResponseHeaders: []outbox.Header{{Name: "a"}}},
		}}})
	}
	tell(7)
	tell(8)
	if len(all.Attempts) != 2 || len(seven.Attempts) != 1 {
		t.Errorf("all saw %d, seven %d", len(all.Attempts), len(seven.Attempts))
	}
	if a := <-all.Attempts; a.ResponseBody != nil || a.ResponseHeaders != nil {
		t.Error("it shows what the receiver answered")
	}
	seven.Close()
	tell(7)
	if len(seven.Attempts) != 1 {
		t.Error("it goes on after it was closed")
	}
	feed.Close()
	for range all.Attempts {
	}
	if _, ok := feed.Read(0); ok {
		t.Error("a closed feed is read")
	}
}
