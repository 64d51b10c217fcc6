package listen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/signature"
)

// Puller brings a tenant's new events to a local address, over a stream that goes on where it was
// cut.
//
// It is for development. Every event is posted once, in the order of acceptance, and not tried
// again; what the address answers is shown.
type Puller struct {
	Client *client.Client
	Tenant string
	// EventTypes to bring; none: all.
	EventTypes []string
	// To is where events are posted.
	To string
	// Secret signs them.
	Secret signature.Secret
	// Log gets what went wrong; nil: nothing.
	Log *slog.Logger
	// Forwarded, if set, is told of every event posted and the answer's status (0: none came).
	Forwarded func(e client.Event, status int)

	http *http.Client
}

// Run pulls until ctx ends, from the events of now on. It returns an error if the server refuses;
// a server that is away later is asked again.
func (p *Puller) Run(ctx context.Context) error {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.http = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request := client.Request{Path: client.Path("v1", "tenants", p.Tenant, "listen"), Query: url.Values{"event_type": p.EventTypes}}
	return p.Client.Follow(ctx, request, func(s client.StreamEvent) error {
		var e struct {
			client.Event
			Payload []byte `json:"payload_base64"`
		}
		if s.Kind != "event" {
			return nil // of a newer server
		}
		if err := json.Unmarshal(s.Data, &e); err != nil {
			return fmt.Errorf("an event cannot be read: %w", err)
		}
		status := p.post(ctx, e.Event, e.Payload)
		if p.Forwarded != nil {
			p.Forwarded(e.Event, status)
		}
		return nil
	}, func(cause error) {
		if cause != nil {
			p.Log.WarnContext(ctx, "the stream of events is cut; trying on", "error", cause)
		} else {
			p.Log.InfoContext(ctx, "hearing events again")
		}
	})
}

// post sends one event and returns the answer's status, 0 if none came.
func (p *Puller) post(ctx context.Context, e client.Event, payload []byte) int {
	now := time.Now()
	signer, err := signature.NewSigner(p.Secret)
	if err != nil {
		p.Log.ErrorContext(ctx, "cannot sign", "error", err)
		return 0
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.To, bytes.NewReader(payload))
	if err != nil {
		p.Log.ErrorContext(ctx, "cannot forward", "error", err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "waybill-listen")
	req.Header.Set(signature.HeaderID, e.ID)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(signature.HeaderSignature, signer.Sign(e.ID, now, payload))
	req.Header.Set("Waybill-Event-Type", e.Type)
	req.Header.Set("Waybill-Attempt", "1")
	resp, err := p.http.Do(req)
	if err != nil {
		p.Log.WarnContext(ctx, "the local address did not answer", "event_id", e.ID, "error", err)
		return 0
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	resp.Body.Close()
	return resp.StatusCode
}

// CheckForward refuses an address that events cannot be posted to.
func CheckForward(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not an address to forward to; write it like http://localhost:3000/webhooks", address)
	}
	return nil
}
