package api

import (
	"encoding/hex"
	"net/http"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// arrivalRoutes are where webhooks arrive, and what arrived.
func arrivalRoutes() []*route {
	const in, requests = "/in/{source}", "/v1/sources/{source}/requests"
	return []*route{
		{method: "POST", path: in, name: "receiveWebhook", tag: "Sources", gateway: true,
			summary: "Take in a provider's webhook", about: "Signed by the provider; no key is needed. A 2xx says that it is stored, or was stored before. The statuses are the provider's, and those of the source's responses.",
			answers: map[int]any{200: nil}, refuses: []int{401, 404, 413, 503}},
		{method: "GET", path: in, name: "answerHandshake", tag: "Sources", gateway: true,
			summary: "Answer a provider's handshake", about: "Of providers that look whether an address is theirs before they send to it, and only of those.",
			answers: map[int]any{200: nil}, refuses: []int{401, 404, 405}},
		{method: "GET", path: requests, name: "listRequests", tag: "Sources", scope: ScopeRead, operator: true,
			summary: "List what arrived at a source", about: "Duplicates and refusals are written down a second later, and of many alike only some.",
			query:   queryOf(listParams, []param{{name: "outcome", about: "What became of it.", words: inboundOutcomes}}),
			answers: map[int]any{200: list[inboundView]{}}, refuses: []int{404}, handle: (*API).listRequests},
		{method: "GET", path: requests + "/{in}", name: "getRequest", tag: "Sources", scope: ScopeRead, operator: true,
			summary: "Read what arrived", about: "With the whole body of a quarantined one, until it is released (the event has it then) or erased.",
			answers: map[int]any{200: inboundView{}}, refuses: []int{404}, handle: (*API).getRequest},
		{method: "POST", path: requests + "/{in}/release", name: "releaseRequest", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "Make a quarantined request an event after all", about: "Of the type that the source gives it now; no schema is asked. Released again it is the same event.",
			body: emptySchema(), answers: map[int]any{202: releasedView{}}, refuses: []int{404, 409}, handle: (*API).releaseRequest},
	}
}

var inboundOutcomes = []string{
	string(outbox.InboundAccepted), string(outbox.InboundDuplicate), string(outbox.InboundRejected), string(outbox.InboundQuarantined),
}

// outcomeWords say what became of a request that waits for nobody.
var outcomeWords = map[outbox.InboundOutcome]string{
	outbox.InboundAccepted: "accepted", outbox.InboundDuplicate: "a repeat of another", outbox.InboundRejected: "refused",
}

// maxListedBody is the largest body that a list shows: a page of the largest would be hundreds of MB.
const maxListedBody = 16 << 10

// inboundView is one request to a source.
type inboundView struct {
	ID              outbox.InboundID      `json:"id"`
	Outcome         outbox.InboundOutcome `json:"outcome"`
	At              stamp                 `json:"at"`
	EventID         *outbox.EventID       `json:"event_id" doc:"The event it is, or repeats"`
	ReleasedEventID *outbox.EventID       `json:"released_event_id" doc:"The event that a quarantined one was made"`
	ProviderID      *string               `json:"provider_id" doc:"The provider's id for it"`
	Topic           *string               `json:"topic" doc:"The provider's word for what happened"`
	Reason          *string               `json:"reason" doc:"Why it was refused or quarantined, in a word"`
	Detail          *string               `json:"detail" doc:"And in a sentence"`
	Bytes           int                   `json:"bytes"`
	Digest          *string               `json:"digest" doc:"SHA-256 of the body, in hex"`
	Times           int                   `json:"times" doc:"How many like it this row stands for; of a quarantined one itself and its repeats"`
	BodyBase64      []byte                `json:"body_base64,omitempty" doc:"Of a quarantined one until it is released or erased; in lists of at most 16 KiB"`
}

func viewInbound(r *outbox.InboundRequest) inboundView {
	v := inboundView{
		ID: r.ID, Outcome: r.Outcome, At: stamp(r.ID.Time()), EventID: orNull(r.Event), ReleasedEventID: orNull(r.Released),
		ProviderID: orNull(r.ProviderID), Topic: orNull(r.Topic), Reason: orNull(r.Reason), Detail: orNull(r.Detail),
		Bytes: r.Bytes, Times: r.Times, BodyBase64: r.Body,
	}
	if r.Digest != [32]byte{} {
		v.Digest = new(hex.EncodeToString(r.Digest[:]))
	}
	return v
}

func (a *API) listRequests(q *request) (*answer, error) {
	p := q.params()
	outcome := p.oneOf("outcome", inboundOutcomes...)
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	src, err := q.store.Source(q.Context(), q.PathValue("source"))
	if err != nil {
		return nil, err
	}
	rows, next, err := q.store.Requests(q.Context(), outbox.RequestQuery{
		Source: src.ID, Shard: outbox.SourceShard(src.Name), Outcome: outbox.InboundOutcome(outcome), After: outbox.InboundID(after),
	}, page)
	if err != nil {
		return nil, err
	}
	out := list[inboundView]{Data: []inboundView{}}
	for i := range rows {
		v := viewInbound(&rows[i])
		if len(v.BodyBase64) > maxListedBody {
			v.BodyBase64 = nil
		}
		out.Data = append(out.Data, v)
	}
	if !next.IsZero() {
		out.NextCursor = p.cursor(position(next))
	}
	return ok(out)
}

// arrival finds the request that a path names.
func (q *request) arrival() (outbox.Source, outbox.InboundRequest, error) {
	src, err := q.store.Source(q.Context(), q.PathValue("source"))
	if err != nil {
		return outbox.Source{}, outbox.InboundRequest{}, err
	}
	id, err := outbox.ParseInboundID(q.PathValue("in"))
	if err != nil {
		return outbox.Source{}, outbox.InboundRequest{}, outbox.ErrNotFound
	}
	r, err := q.store.Request(q.Context(), src.ID, outbox.SourceShard(src.Name), id)
	return src, r, err
}

func (a *API) getRequest(q *request) (*answer, error) {
	_, r, err := q.arrival()
	if err != nil {
		return nil, err
	}
	return ok(viewInbound(&r))
}

// releasedView is the answer to a release.
type releasedView struct {
	EventID outbox.EventID `json:"event_id"`
	Type    string         `json:"type"`
}

// releaseRequest makes an event of a request that waits in quarantine. The event is stored first: a
// process that dies then is asked again, and finds it by its key.
func (a *API) releaseRequest(q *request) (*answer, error) {
	if _, err := q.empty(); err != nil {
		return nil, err
	}
	src, r, err := q.arrival()
	if err != nil {
		return nil, err
	}
	if r.Outcome != outbox.InboundQuarantined {
		return nil, fail(CodeNotQuarantined, "the request is not in quarantine, it was %s", outcomeWords[r.Outcome])
	}
	if r.ReleaseKey == [32]byte{} {
		return nil, fail(CodeNotQuarantined, "the request was kept by a version that could not release any, without what an event is made of")
	}
	if r.Erased() {
		return nil, fail(CodePayloadGone, "the request's body was erased, and there is nothing to release")
	}
	if src.TenantKey == "" {
		return nil, fail(CodeUnknownTenant, "the source's tenant is deleted; give it another")
	}
	event := inbound.Release(&src, &r, q.now)
	if r.Released.IsZero() {
		accepted, conflicts, err := a.cfg.Publisher.Submit(q.Context(), []outbox.NewEvent{event})
		if err != nil {
			return nil, err
		}
		if len(conflicts) > 0 {
			return nil, failConflicts(conflicts, nil)
		}
		if accepted[0].OtherBody {
			// An event came under its id meanwhile, and is not what is asked for.
			event.Inbound.Key = inbound.OtherBodyKey(event.Inbound)
			if accepted, conflicts, err = a.cfg.Publisher.Submit(q.Context(), []outbox.NewEvent{event}); err != nil {
				return nil, err
			}
			if len(conflicts) > 0 {
				return nil, failConflicts(conflicts, nil)
			}
		}
		r.Released = accepted[0].ID
		q.author.Entry.Tenant, q.author.Entry.TenantKey = src.Tenant, src.TenantKey
		q.records("request.release", r.ID.String(), outbox.Changes{"released_event_id": {To: r.Released.String()}})
		if err := q.store.ReleaseRequest(q.Context(), src.ID, outbox.SourceShard(src.Name), r.ID, r.Released); err != nil {
			return nil, err
		}
	}
	return &answer{status: http.StatusAccepted, body: releasedView{r.Released, event.Type}}, nil
}
