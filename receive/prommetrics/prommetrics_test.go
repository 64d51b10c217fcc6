package prommetrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/prommetrics"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// value is a counter's, or the number of a histogram's observations, for the labels given as a=b.
func value(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for _, want := range labels {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName()+"="+l.GetValue() == want
				}
				if !found {
					continue metrics
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

func TestMetrics_countWhatReceiversDo(t *testing.T) {
	m := prommetrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	store := receivetest.NewStore()
	src := receivetest.NewSource(t, "billing", providers.Stripe())
	fail := true
	s, err := receive.NewSync(t.Context(), receive.SyncConfig{
		Source: src, Store: store, Observe: m.Observe, StoreDown: receive.Open,
		Handler: func(context.Context, *receive.Delivery) error {
			if fail {
				return errors.New("not now")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string) { receivetest.Post(t, s, src, body) }
	post(`{"id":"evt_1"}`)
	fail = false
	post(`{"id":"evt_1"}`)
	post(`{"id":"evt_1"}`)
	forged := receivetest.Request(t, src, `{"id":"evt_2"}`)
	forged.Header.Set("Stripe-Signature", "t=1,v1="+strings.Repeat("0", 64))
	receivetest.Do(s, forged)
	store.Fail("claim", 2, errors.New("refused"), false)
	store.Fail("settle", 9, errors.New("refused"), false)
	post(`{"id":"evt_3"}`)

	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"inbound_deliveries_total", []string{"source=billing", "provider=stripe", "outcome=processed"}, 1},
		{"inbound_deliveries_total", []string{"outcome=failed"}, 1},
		{"inbound_deliveries_total", []string{"outcome=duplicate"}, 1},
		{"inbound_deliveries_total", []string{"outcome=rejected"}, 1},
		{"inbound_deliveries_total", []string{"outcome=degraded"}, 1},
		{"inbound_signature_rejects_total", []string{"reason=mismatch"}, 1},
		{"inbound_unprotected_runs_total", []string{"reason=store_down"}, 1},
		{"inbound_store_errors_total", []string{"source=billing", "reason=store_down"}, 1},
		{"inbound_request_seconds", nil, 5},
		{"inbound_run_seconds", nil, 3},
		{"inbound_lease_margin_seconds", nil, 3},
		{"inbound_duplicate_age_seconds", nil, 1},
	} {
		if got := value(t, registry, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

func TestMetrics_aLostStoreIsMarked(t *testing.T) {
	m := prommetrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	for _, step := range []struct {
		o    receive.Observation
		want float64
	}{
		{receive.Observation{Step: receive.StepRequest, Outcome: receive.Processed}, 0},
		{receive.Observation{Step: receive.StepStore, Outcome: receive.Failed, Reason: "store_slow"}, 0},
		{receive.Observation{Step: receive.StepStore, Outcome: receive.StoreLost}, 1},
		{receive.Observation{Step: receive.StepRequest, Outcome: receive.Failed, Reason: "store_slow"}, 1},
		{receive.Observation{Step: receive.StepStore, Outcome: receive.StoreBack}, 0},
	} {
		step.o.Source, step.o.Provider = "billing", "stripe"
		m.Observe(t.Context(), step.o)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range families {
			if f.GetName() == "inbound_store_lost" {
				found = true
				if got := f.GetMetric()[0].GetGauge().GetValue(); got != step.want {
					t.Errorf("after %s: %v, want %v", step.o.Outcome, got, step.want)
				}
			}
		}
		if !found {
			t.Errorf("after %s: it is not shown", step.o.Outcome)
		}
	}
}
