package app

import (
	"cmp"

	"github.com/waybill-dev/waybill/internal/api"
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

// Preview builds an attempt's request.
func (p previewer) Preview(r *api.Previewed) (attempt.Preview, error) {
	body := r.Event.Payload
	if r.Endpoint.PayloadMode == outbox.PayloadThin {
		body = p.links.Body(thin.Event{ID: r.Event.ID, Tenant: r.Tenant.ID, Type: r.Event.Type, CreatedAt: r.Event.CreatedAt},
			r.At.Add(cmp.Or(r.Endpoint.ThinTTL, outbox.DefaultThinTTL)))
	}
	target := p.sender.Prepare(attempt.Of(r.Endpoint, r.Tenant, r.Endpoint.Retry.Over(r.Tenant.Retry).Over(p.retry), r.Book))
	return p.sender.Preview(attempt.Request{
		Target: target, Event: r.Event.ID, EventType: r.Event.Type, N: r.N, Sequence: r.Sequence, Payload: body, Metadata: r.Event.Metadata,
	})
}

// Try connects to an endpoint's address and sends nothing.
func (p previewer) Try(e *outbox.Endpoint, t *outbox.Tenant, book signing.Book) attempt.Tried {
	return p.sender.Try(p.sender.Prepare(attempt.Of(e, t, p.retry, book)))
}
