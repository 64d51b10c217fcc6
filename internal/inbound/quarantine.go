package inbound

import (
	"crypto/sha256"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive"
)

// Quarantined is the outcome of a request whose event's type refuses it: it is kept, its provider is
// told that it is, and people decide.
const Quarantined = "quarantined"

// quarantine is the record of an event that is kept and not delivered, with all it takes to make it
// one after all.
func (s *compiled) quarantine(r *receive.Record, e *outbox.NewEvent, reason, detail string, now time.Time) outbox.InboundRequest {
	q := s.request(outbox.InboundQuarantined, r, outbox.EventID{}, now)
	q.Reason, q.Detail = reason, detail
	q.Body, q.Metadata = r.Body, e.Metadata
	q.ReleaseKey, q.Window = e.Inbound.Key, e.Inbound.Window
	if reason == outbox.QuarantinedOtherBody {
		// The key is the first body's. This one's is its own, and the same for each of its repeats.
		q.ReleaseKey = OtherBodyKey(e.Inbound)
	}
	return q
}

// OtherBodyKey is the key of an event whose own key is that of an event with another body.
func OtherBodyKey(in *outbox.Inbound) [32]byte {
	return sha256.Sum256(append(in.Key[:], in.Digest[:]...))
}

// Release makes a quarantined request the event it would have been, of the type that the source
// gives it now. Made twice it is stored once.
func Release(src *outbox.Source, q *outbox.InboundRequest, now time.Time) outbox.NewEvent {
	return outbox.NewEvent{
		Event: outbox.Event{
			ID: outbox.NewEventID(now), Tenant: src.Tenant, Type: eventType(src, q.Topic), Metadata: q.Metadata,
			Payload: q.Body, SHA256: sha256.Sum256(q.Body), CreatedAt: now,
		},
		Inbound: &outbox.Inbound{
			Source: src.ID, Shard: outbox.SourceShard(src.Name), Key: q.ReleaseKey, Digest: q.Digest, ProviderID: q.ProviderID, Topic: q.Topic,
		},
	}
}
