package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// acceptedEvent is the answer for one published event.
type acceptedEvent struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	CreatedAt stamp     `json:"created_at"`
	Duplicate bool      `json:"duplicate" doc:"It was stored before; nothing was stored now"`
	Warnings  []warning `json:"warnings,omitempty" doc:"Where the payload does not follow its type's schema"`
}

// postEvent publishes one event: the hot path.
func (a *API) postEvent(q *request) (*answer, error) {
	if err := refuseReserved(&q.tenant); err != nil {
		return nil, err
	}
	key, err := q.idempotencyKey()
	if err != nil {
		return nil, err
	}
	in := intake{now: q.now, maxPayload: a.cfg.MaxPayload, lenient: q.lenient}
	item, err := in.single(q.body)
	if err != nil {
		return nil, err
	}
	if key != "" {
		if item.IdempotencyKey != "" && item.IdempotencyKey != key {
			return nil, failField("idempotency_key", CodeInvalidField, "differs from the header Idempotency-Key")
		}
		item.IdempotencyKey = key
	}
	events := []outbox.NewEvent{item.NewEvent}
	in.finish(&events[0], &q.tenant)
	if len(q.body) > 2*len(events[0].Payload)+4096 {
		// The payload is kept until it is delivered; what surrounds it need not be.
		events[0].Payload = bytes.Clone(events[0].Payload)
	}
	warnings, problems, err := a.follow(q, &events[0], nil)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, failItems(problems)
	}
	accepted, conflicts, err := a.cfg.Publisher.Submit(q.Context(), events)
	if err != nil {
		return nil, err
	}
	if len(conflicts) > 0 {
		return nil, failConflicts(conflicts, nil)
	}
	again := accepted[0].Again
	if again {
		accepted[0].Duplicate = false // as the first answer said
	}
	ans := &answer{status: http.StatusAccepted, replayed: again, raw: append(appendAccepted(make([]byte, 0, 160), &accepted[0], events[0].Type, warnings), '\n')}
	return ans, nil
}

// postBatch publishes events of one tenant, all or none.
func (a *API) postBatch(q *request) (*answer, error) {
	if err := refuseReserved(&q.tenant); err != nil {
		return nil, err
	}
	return a.batch(q, false)
}

// postCrossBatch publishes events of several tenants, all or none.
func (a *API) postCrossBatch(q *request) (*answer, error) { return a.batch(q, true) }

func (a *API) batch(q *request, cross bool) (*answer, error) {
	in := intake{now: q.now, maxPayload: a.cfg.MaxPayload, lenient: q.lenient, cross: cross}
	items, err := in.batch(q.body)
	if err != nil {
		return nil, err
	}
	if err := a.batchTenants(q, &in, items, cross); err != nil {
		return nil, err
	}
	if key := q.Header["Idempotency-Key"]; key != nil {
		deriveKeys(items, key[0], q.digest(), cross)
	}
	warnings := make([][]warning, len(items))
	var problems []Item
	for i := range items {
		var bad []Item
		if warnings[i], bad, err = a.follow(q, &items[i].NewEvent, &i); err != nil {
			return nil, err
		}
		problems = append(problems, bad...)
	}
	if len(problems) > 0 {
		return nil, failItems(problems)
	}
	events, place, err := distinct(items)
	if err != nil {
		return nil, err
	}
	accepted, conflicts, err := a.cfg.Publisher.Submit(q.Context(), events)
	if err != nil {
		return nil, err
	}
	if len(conflicts) > 0 {
		return nil, failConflicts(conflicts, place)
	}
	out := append(make([]byte, 0, 128*len(items)+16), `{"data":[`...)
	shown := make([]bool, len(events))
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		one := accepted[place[i]]
		one.Duplicate = one.Duplicate || shown[place[i]]
		shown[place[i]] = true
		out = appendAccepted(out, &one, items[i].Type, warnings[i])
	}
	return &answer{status: http.StatusAccepted, raw: append(out, "]}\n"...)}, nil
}

// batchTenants gives every item its tenant and the rest of what makes it an event.
func (a *API) batchTenants(q *request, in *intake, items []item, cross bool) error {
	if !cross {
		for i := range items {
			in.finish(&items[i].NewEvent, &q.tenant)
		}
		return nil
	}
	found := map[string]*outbox.Tenant{}
	var bad []Item
	for i := range items {
		t, known := found[items[i].tenant]
		if !known {
			one, err := a.findTenant(q, items[i].tenant, true)
			if err == nil {
				err = refuseReserved(&one)
			}
			if p, refused := errors.AsType[*Problem](err); refused {
				bad = append(bad, Item{Index: new(i), Path: "tenant", Code: p.Code, Detail: p.Detail})
				continue
			}
			if err != nil {
				return err
			}
			t = &one
			found[t.Key] = t
		}
		in.finish(&items[i].NewEvent, t)
	}
	if len(bad) > 0 {
		return failItems(bad)
	}
	return nil
}

// refuseReserved keeps the operator tenant to operational events.
func refuseReserved(t *outbox.Tenant) error {
	if t.Key == outbox.OperatorTenant {
		return failField("tenant", CodeReservedTenant, "the tenant %s is reserved for operational events", t.Key)
	}
	return nil
}

// deriveKeys gives the events of a batch with a key their own keys, so that a batch that is run
// again after a crash meets its events instead of storing them twice. They hold what no caller's
// key can, a control character. An event whose own key is that of the batch of its tenant has no
// other: the key is the batch's.
func deriveKeys(items []item, key string, digest [32]byte, cross bool) {
	h := sha256.Sum256(append([]byte(key), digest[:]...))
	prefix := "batch\x01" + hex.EncodeToString(h[:16]) + "\x01"
	for i := range items {
		if own := items[i].IdempotencyKey; own == "" || own == key && !cross {
			items[i].IdempotencyKey = prefix + strconv.Itoa(i)
		}
	}
}

// distinct drops the items of a batch that repeat an earlier one's key or id, and tells for
// every item which event answers it. A repetition with other content is refused, as it would be
// in a request of its own.
func distinct(items []item) (events []outbox.NewEvent, place []int, err error) {
	events = make([]outbox.NewEvent, 0, len(items))
	place = make([]int, len(items))
	type identity struct {
		tenant outbox.TenantID
		key    string
		id     outbox.EventID
	}
	seen := map[identity]int{}
	var bad []Item
	for i := range items {
		e := &items[i].NewEvent
		place[i] = len(events)
		var own []identity
		if e.Chosen {
			own = append(own, identity{tenant: e.Tenant.ID, id: e.ID})
		}
		if e.IdempotencyKey != "" {
			own = append(own, identity{tenant: e.Tenant.ID, key: e.IdempotencyKey})
		}
		for _, k := range own {
			first, met := seen[k]
			if !met {
				continue
			}
			place[i] = first
			if events[first].Digest() == e.Digest() {
				continue
			}
			if k.key == "" {
				bad = append(bad, Item{Index: new(i), Path: "id", Code: CodeIDConflict, Detail: "an earlier event of the batch has this id and other content"})
			} else {
				bad = append(bad, Item{Index: new(i), Path: "idempotency_key", Code: CodeIdempotencyMismatch, Detail: "an earlier event of the batch has this key and other content"})
			}
		}
		if place[i] < len(events) {
			continue
		}
		for _, k := range own {
			seen[k] = len(events)
		}
		events = append(events, *e)
	}
	if len(bad) > 0 {
		return nil, nil, failItems(bad)
	}
	return events, place, nil
}

// failConflicts says which events meet something else under their id or key. place maps the
// events of a batch to the items of the request; nil for a single event.
func failConflicts(conflicts []outbox.Conflict, place []int) error {
	var items []Item
	for _, c := range conflicts {
		item := Item{Path: "id", Code: CodeIDConflict, Detail: "an event with this id is stored with other content"}
		if errors.Is(c.Err, outbox.ErrIdempotencyMismatch) {
			item = Item{Path: "idempotency_key", Code: CodeIdempotencyMismatch, Detail: "the key was used with another type or payload"}
		}
		for i, event := range place {
			if event == c.Index {
				item.Index = new(i)
				break
			}
		}
		items = append(items, item)
	}
	return failItems(items)
}

// appendAccepted writes an acceptedEvent. Ids and event types hold nothing that JSON escapes.
func appendAccepted(b []byte, a *outbox.Accepted, eventType string, warnings []warning) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, a.ID.String()...)
	b = append(b, `","type":"`...)
	b = append(b, eventType...)
	b = append(b, `","created_at":`...)
	b = stamp(a.CreatedAt).append(b)
	b = append(b, `,"duplicate":`...)
	b = strconv.AppendBool(b, a.Duplicate)
	if len(warnings) > 0 {
		b = append(append(b, `,"warnings":`...), compact(warnings)...)
	}
	return append(b, '}')
}
