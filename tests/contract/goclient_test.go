package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	waybillapi "github.com/waybill-dev/waybill/clients/go"
	"github.com/waybill-dev/waybill/tests/program"
)

// eventually waits for a condition as long as a crowded machine may need.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 60 s: not %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestGoClient_fromATenantToAReplay(t *testing.T) {
	server := program.Serve(t, program.Build(t), "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	client, err := waybillapi.New(server.URL, server.APIKey)
	must(t, err)
	customer := newReceiver(t)
	ctx := t.Context()

	tenant, err := client.PutTenantWithResponse(ctx, "acme", waybillapi.TenantInput{Name: new("Acme"), Metadata: map[string]string{"plan": "pro"}})
	must(t, err)
	if tenant.JSON201 == nil || tenant.JSON201.Tenant != "acme" || tenant.JSON201.State != waybillapi.TenantStateActive {
		t.Fatalf("tenant: %d %s", tenant.StatusCode(), tenant.Body)
	}
	made, err := client.CreateEndpointWithResponse(ctx, "acme", nil, waybillapi.EndpointInput{
		URL:        customer.URL + "/hooks",
		UID:        new("main"),
		EventTypes: []string{"payment.*"},
		Retry:      &waybillapi.RetryInput{MaxAttempts: new(1)},
	})
	must(t, err)
	endpoint := made.JSON201
	if endpoint == nil || len(endpoint.Secret) < len("whsec_")+32 || endpoint.Retry.MaxAttempts == nil || *endpoint.Retry.MaxAttempts != 1 {
		t.Fatalf("endpoint: %d %s", made.StatusCode(), made.Body)
	}

	// It arrives, byte for byte.
	payload := json.RawMessage(`{"id":"pay_1","amount":12345678901234567890}`)
	published, err := client.PublishEventWithResponse(ctx, "acme", &waybillapi.PublishEventParams{IdempotencyKey: new("once")},
		waybillapi.EventInput{Type: "payment.succeeded", Payload: payload})
	must(t, err)
	event := published.JSON202
	eventually(t, "delivered", func() bool { return len(customer.got(event.ID)) == 1 })
	if got := customer.got(event.ID)[0]; string(got) != string(payload) {
		t.Errorf("delivered %s", got)
	}
	again, err := client.PublishEventWithResponse(ctx, "acme", &waybillapi.PublishEventParams{IdempotencyKey: new("once")},
		waybillapi.EventInput{Type: "payment.succeeded", Payload: payload})
	must(t, err)
	if again.JSON202.ID != event.ID || again.HTTPResponse.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same key made %s of %s", again.JSON202.ID, event.ID)
	}

	// A receiver that refuses makes a dead letter, with the reason.
	customer.answer(410)
	var dead waybillapi.Delivery
	refused, err := client.PublishEventWithResponse(ctx, "acme", nil, waybillapi.EventInput{Type: "payment.failed", Payload: json.RawMessage(`{}`)})
	must(t, err)
	eventually(t, "dead", func() bool {
		list, err := client.ListDeliveriesWithResponse(ctx, "acme", &waybillapi.ListDeliveriesParams{
			State: []waybillapi.DeliveryState{waybillapi.DeliveryStateDead}, EventID: &refused.JSON202.ID,
		})
		must(t, err)
		if len(list.JSON200.Data) == 0 {
			return false
		}
		dead = list.JSON200.Data[0]
		return true
	})
	if dead.Dead == nil || dead.LastAttempt == nil || dead.LastAttempt.StatusCode == nil || *dead.LastAttempt.StatusCode != 410 {
		t.Errorf("dead delivery: %+v", dead)
	}

	// 410 says that the endpoint is gone for good; it is switched on again, and the letter replayed.
	customer.answer(204)
	_, err = client.PatchEndpointWithResponse(ctx, "acme", "main", waybillapi.EndpointPatch{State: new(waybillapi.EndpointStateActive)})
	must(t, err)
	replayed, err := client.ReplayDeliveryWithResponse(ctx, "acme", dead.ID, nil, waybillapi.EmptyInput{})
	must(t, err)
	if replayed.JSON202.Was != waybillapi.DeliveryStateDead {
		t.Errorf("it was %s", replayed.JSON202.Was)
	}
	eventually(t, "delivered again", func() bool {
		now, err := client.GetDeliveryWithResponse(ctx, "acme", dead.ID)
		must(t, err)
		return now.JSON200.State == waybillapi.DeliveryStateDelivered
	})
	if n := len(customer.got(refused.JSON202.ID)); n != 2 {
		t.Errorf("the receiver got it %d times, want 2", n)
	}

	t.Run("errors are typed", func(t *testing.T) {
		_, err := client.CreateEndpointWithResponse(ctx, "acme", nil, waybillapi.EndpointInput{URL: "ftp://example.com", UID: new("not a uid"), MaxInFlight: new(0)})
		refusal, is := errors.AsType[*waybillapi.Error](err)
		if !is || refusal.Status != 422 || refusal.Code != waybillapi.ErrorCodeInvalidRequest || refusal.RequestID == "" {
			t.Fatalf("got %v", err)
		}
		wrong := map[string]waybillapi.ErrorCode{}
		for _, item := range refusal.Errors {
			wrong[item.Path] = item.Code
		}
		if wrong["url"] != waybillapi.ErrorCodeURLScheme || wrong["uid"] != waybillapi.ErrorCodeInvalidField || wrong["max_in_flight"] != waybillapi.ErrorCodeInvalidField || len(wrong) != 3 {
			t.Errorf("wrong are %v", wrong)
		}
		_, err = client.GetTenantWithResponse(ctx, "nobody")
		if refusal, is := errors.AsType[*waybillapi.Error](err); !is || refusal.Status != 404 {
			t.Errorf("an unknown tenant: %v", err)
		}
		stranger, err := waybillapi.New(server.URL, "not a key")
		must(t, err)
		_, err = stranger.WhoAmIWithResponse(ctx)
		if refusal, is := errors.AsType[*waybillapi.Error](err); !is || refusal.Code != waybillapi.ErrorCodeUnauthorized {
			t.Errorf("a wrong key: %v", err)
		}
	})

	t.Run("lists are walked over", func(t *testing.T) {
		want := []string{refused.JSON202.ID, event.ID}
		var batch waybillapi.BatchInput
		for i := range 5 {
			batch.Events = append(batch.Events, waybillapi.EventInput{Type: "payment.noted", Payload: json.RawMessage(fmt.Sprint(i))})
		}
		accepted, err := client.PublishBatchWithResponse(ctx, "acme", nil, batch)
		must(t, err)
		for _, e := range accepted.JSON202.Data {
			want = append(want, e.ID)
		}
		pages := 0
		var got []string
		for e, err := range waybillapi.All(func(cursor *string) ([]waybillapi.Event, *string, error) {
			page, err := client.ListEventsWithResponse(ctx, "acme", &waybillapi.ListEventsParams{Limit: new(2), Cursor: cursor, Order: new(waybillapi.OrderAsc)})
			if err != nil {
				return nil, nil, err
			}
			pages++
			return page.JSON200.Data, page.JSON200.NextCursor, nil
		}) {
			must(t, err)
			got = append(got, e.ID)
		}
		slices.Sort(want) // ids sort by time, so ascending is the order of their text
		if !slices.Equal(got, want) || pages < 4 {
			t.Errorf("%d pages of %v, want %v", pages, got, want)
		}
		for _, err := range waybillapi.All(func(*string) ([]waybillapi.Event, *string, error) {
			page, err := client.ListEventsWithResponse(ctx, "acme", &waybillapi.ListEventsParams{Cursor: new("forged")})
			if err != nil {
				return nil, nil, err
			}
			return page.JSON200.Data, page.JSON200.NextCursor, nil
		}) {
			if refusal, is := errors.AsType[*waybillapi.Error](err); !is || refusal.Code != waybillapi.ErrorCodeCursorInvalid {
				t.Errorf("a forged cursor: %v", err)
			}
		}
	})

	t.Run("a context ends a request", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := client.WhoAmIWithResponse(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
