package app

import (
	"cmp"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
	"github.com/waybill-dev/waybill/internal/thin"
)

// derived are the keys for a purpose that every node of the instance derives from its encryption
// keys: that of the current one, then those of older ones.
func (a *App) derived(purpose string) ([][]byte, error) {
	keys, err := a.cfg.Keyring()
	if err != nil {
		return nil, err
	}
	return keys.Derive(purpose), nil
}

// previewer shows requests as the sender would send them, and where they would go.
type previewer struct {
	sender *attempt.Sender
	links  *thin.Links
	retry  outbox.RetryPolicy
}

// Preview builds the first attempt's request for an event that is not stored.
func (p previewer) Preview(e *outbox.Endpoint, t *outbox.Tenant, book signing.Book, event *outbox.Event) (attempt.Preview, error) {
	body := event.Payload
	if e.PayloadMode == outbox.PayloadThin {
		body = p.links.Body(thin.Event{ID: event.ID, Tenant: t.ID, Type: event.Type, CreatedAt: event.CreatedAt},
			event.CreatedAt.Add(cmp.Or(e.ThinTTL, outbox.DefaultThinTTL)))
	}
	target := p.sender.Prepare(attempt.Of(e, t, e.Retry.Over(t.Retry).Over(p.retry), book))
	return p.sender.Preview(attempt.Request{Target: target, Event: event.ID, EventType: event.Type, N: 1, Sequence: 1, Payload: body, Metadata: event.Metadata})
}

// Try connects to an endpoint's address and sends nothing.
func (p previewer) Try(e *outbox.Endpoint, t *outbox.Tenant, book signing.Book) attempt.Tried {
	return p.sender.Try(p.sender.Prepare(attempt.Of(e, t, p.retry, book)))
}
