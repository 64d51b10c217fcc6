package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// arrivedBefore claims the key of an event that arrived at a source, or returns the event that has
// it: a Duplicate. A key that is remembered for a while only is let go of first, where that is over.
func arrivedBefore(w *session, e *outbox.NewEvent) (outbox.Accepted, error) {
	in := e.Inbound
	if in.Window > 0 {
		before := outbox.InboundFloor(e.CreatedAt.Add(-in.Window))
		if _, err := w.exec(`
			UPDATE waybill_inbound
			SET key = NULL
			WHERE shard = ? AND key = ? AND id < ?`,
			int64(in.Shard), in.Key[:], before[:]); err != nil {
			return outbox.Accepted{}, err
		}
	}
	var first outbox.Accepted
	var digest [32]byte
	err := w.get(`
		SELECT event, digest
		FROM waybill_inbound
		WHERE shard = ? AND key = ?`,
		[]any{int64(in.Shard), in.Key[:]}, idTo{(*[16]byte)(&first.ID)}, digestTo{&digest})
	switch {
	case err == nil && first.ID == e.ID:
		return outbox.Accepted{}, nil // a batch that is run again meets itself
	case err == nil:
		first.CreatedAt, first.Duplicate, first.OtherBody = first.ID.Time(), true, digest != in.Digest
		return first, nil
	case !errors.Is(err, sql.ErrNoRows):
		return outbox.Accepted{}, err
	}
	_, err = w.exec(`
		INSERT INTO waybill_inbound (shard, source, id, outcome, key, digest, event, provider_id, topic, bytes)
		VALUES (?, ?, ?, 'accepted', ?, ?, ?, ?, ?, ?)`,
		int64(in.Shard), in.Source[:], e.ID[:], in.Key[:], in.Digest[:], e.ID[:],
		textOrNull(in.ProviderID), textOrNull(in.Topic), len(e.Payload))
	if err != nil {
		return outbox.Accepted{}, err
	}
	// From here on the event holds the bytes, and an erasure looks for them there. Left to itself
	// SQLite reads all of the shard.
	_, err = w.exec(`
		UPDATE waybill_inbound INDEXED BY waybill_inbound_release
		SET released = coalesce(released, ?), body = NULL
		WHERE shard = ? AND release_key = ? AND outcome = 'quarantined' AND digest = ?`,
		e.ID[:], int64(in.Shard), in.Key[:], in.Digest[:])
	return outbox.Accepted{}, err
}

// RecordRequests stores requests that made no event.
func (s *Store) RecordRequests(ctx context.Context, requests []outbox.InboundRequest) error {
	if len(requests) == 0 {
		return nil
	}
	return s.write(ctx, func(w *session) error {
		for i := range requests {
			if err := insertRequest(w, &requests[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func insertRequest(w *session, r *outbox.InboundRequest) error {
	var metadata, key any
	if len(r.Metadata) > 0 {
		metadata = toJSON(r.Metadata)
	}
	if r.ReleaseKey != [32]byte{} {
		key = r.ReleaseKey[:]
	}
	_, err := w.exec(`
		INSERT INTO waybill_inbound
			(shard, source, id, outcome, reason, detail, provider_id, topic, event, digest, bytes, times, body, metadata, release_key)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (shard, source, id) DO NOTHING`,
		int64(r.Shard), r.Source[:], r.ID[:], string(r.Outcome), textOrNull(r.Reason), textOrNull(r.Detail),
		textOrNull(r.ProviderID), textOrNull(r.Topic), idOrNull(r.Event), r.Digest[:], r.Bytes, max(r.Times, 1), r.Body,
		metadata, key)
	return err
}

// Requests lists what arrived at a source.
func (s *Store) Requests(ctx context.Context, q outbox.RequestQuery, page outbox.Page) (list []outbox.InboundRequest, next outbox.InboundID, err error) {
	where, args := filter{}.
		and("shard = ? AND source = ?", int64(q.Shard), q.Source[:]).
		andIf(!q.After.IsZero() && page.Ascending, "id > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "id < ?", q.After[:]).
		andIf(q.Outcome == outbox.InboundAccepted, "outcome = 'accepted'").
		andIf(q.Outcome != "" && q.Outcome != outbox.InboundAccepted, "outcome = ? AND outcome <> 'accepted'", string(q.Outcome)).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+requestColumns+`
			FROM waybill_inbound
			WHERE `+where+`
			ORDER BY id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit+1), func(scan scan) error {
				one := outbox.InboundRequest{Source: q.Source, Shard: q.Shard}
				err := scan(requestInto(&one)...)
				list = append(list, one)
				return err
			})
	})
	if err != nil || len(list) <= page.Limit {
		return list, next, err
	}
	list = list[:page.Limit]
	return list, list[page.Limit-1].ID, nil
}

const requestColumns = `id, outcome, coalesce(reason, ''), coalesce(detail, ''), coalesce(provider_id, ''), coalesce(topic, ''),
	event, digest, bytes, times, body, coalesce(metadata, 'null'), coalesce(release_key, zeroblob(32)), released`

func requestInto(r *outbox.InboundRequest) []any {
	return []any{
		idTo{(*[16]byte)(&r.ID)}, &r.Outcome, &r.Reason, &r.Detail, &r.ProviderID, &r.Topic,
		idTo{(*[16]byte)(&r.Event)}, digestTo{&r.Digest}, &r.Bytes, &r.Times, &r.Body,
		jsonTo{&r.Metadata}, digestTo{&r.ReleaseKey}, idTo{(*[16]byte)(&r.Released)},
	}
}

// Request finds one request of a source.
func (s *Store) Request(ctx context.Context, source outbox.SourceID, shard outbox.Shard, id outbox.InboundID) (one outbox.InboundRequest, err error) {
	one = outbox.InboundRequest{Source: source, Shard: shard}
	err = s.read(ctx, func(r *session) error {
		err := r.get(`
			SELECT `+requestColumns+`
			FROM waybill_inbound
			WHERE shard = ? AND source = ? AND id = ?`,
			[]any{int64(shard), source[:], id[:]}, requestInto(&one)...)
		if errors.Is(err, sql.ErrNoRows) {
			err = outbox.ErrNotFound
		}
		return err
	})
	return one, err
}

// ReleaseRequest writes down which event a quarantined request was made, and drops its body.
func (s *Store) ReleaseRequest(ctx context.Context, source outbox.SourceID, shard outbox.Shard, id outbox.InboundID, event outbox.EventID) error {
	return s.write(ctx, func(w *session) error {
		n, err := w.exec(`
			UPDATE waybill_inbound
			SET released = coalesce(released, ?), body = NULL
			WHERE shard = ? AND source = ? AND id = ? AND outcome = 'quarantined'`,
			event[:], int64(shard), source[:], id[:])
		if err == nil && n == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// maxDropped is how many bodies go in the transaction that deletes their source or its tenant. Where
// there are more, upkeep takes the rest.
const maxDropped = 10_000

// dropBodies takes the bodies of quarantined requests away, at most limit, and says how many. The
// condition is on their sources s; low and high bound their ids.
func dropBodies(w *session, sources string, arg any, low, high [16]byte, limit int) (int64, error) {
	return w.exec(`
		UPDATE waybill_inbound
		SET body = NULL
		WHERE (shard, source, id) IN (
			SELECT i.shard, i.source, i.id
			FROM waybill_source s
			CROSS JOIN waybill_inbound i
			WHERE `+sources+` AND i.shard = s.shard AND i.source = s.id
				AND i.outcome = 'quarantined' AND i.outcome <> 'accepted' AND i.body IS NOT NULL
				AND i.id > ? AND i.id < ?
			LIMIT ?)`,
		arg, low[:], high[:], limit)
}

// pruneInbound forgets requests that are no longer kept, and deleted sources without any.
func (s *Store) pruneInbound(ctx context.Context, now time.Time) error {
	type kept struct {
		id    outbox.SourceID
		shard outbox.Shard
		keep  time.Duration
		gone  bool // it, or its tenant, is deleted
	}
	var sources []kept
	if err := s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT id, shard, keep,
				deleted_at IS NOT NULL OR tenant NOT IN (SELECT id FROM waybill_tenant WHERE deleted_at IS NULL)
			FROM waybill_source`, nil, func(scan scan) error {
			var one kept
			err := scan(idTo{(*[16]byte)(&one.id)}, &one.shard, lengthTo{&one.keep}, &one.gone)
			sources = append(sources, one)
			return err
		})
	}); err != nil {
		return err
	}
	for _, one := range sources {
		for one.gone { // what its deletion left, or another process put there since
			var n int64
			if err := s.write(ctx, func(w *session) (err error) {
				n, err = dropBodies(w, "s.id = ?", one.id[:], outbox.InboundID{}, outbox.LastInboundID, maxPruned)
				return err
			}); err != nil {
				return err
			}
			one.gone = n == maxPruned
		}
		before := outbox.InboundFloor(now.Add(-one.keep))
		for {
			var n int64
			if err := s.write(ctx, func(w *session) (err error) {
				n, err = w.exec(`
					DELETE FROM waybill_inbound
					WHERE (shard, source, id) IN (
						SELECT shard, source, id
						FROM waybill_inbound
						WHERE shard = ? AND source = ? AND id < ?
						LIMIT ?)`,
					int64(one.shard), one.id[:], before[:], maxPruned)
				return err
			}); err != nil {
				return err
			}
			if n < maxPruned {
				break
			}
		}
	}
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			DELETE FROM waybill_source
			WHERE deleted_at IS NOT NULL
				AND NOT EXISTS (SELECT 1 FROM waybill_inbound i WHERE i.shard = waybill_source.shard AND i.source = waybill_source.id)`)
		return err
	})
}
