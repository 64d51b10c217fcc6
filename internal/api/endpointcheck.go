package api

import (
	"errors"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// Trier connects to an endpoint's address without sending anything; internal/attempt's Sender.
type Trier interface {
	Try(e *outbox.Endpoint, t *outbox.Tenant, book signing.Book) attempt.Tried
}

// checkedView is what would become of an endpoint, and what its address shows.
type checkedView struct {
	Would      string          `json:"would" enum:"create,update"`
	URL        string          `json:"url" doc:"As it would be dialled"`
	Connection *connectionView `json:"connection" doc:"null: it was not asked for"`
}

type connectionView struct {
	OK                bool    `json:"ok"`
	Kind              *string `json:"kind" doc:"As of a failed attempt"`
	Message           *string `json:"message"`
	CertificateUntil  *stamp  `json:"certificate_until"`
	ClientCertificate bool    `json:"client_certificate_asked"`
}

// errChecked ends an edit that was only to be judged.
var errChecked = errors.New("it was only to be judged")

// checkEndpoint judges an endpoint as a PUT under its uid would, and stores nothing. With
// connect=true it also connects to the address, without sending a request.
func (a *API) checkEndpoint(q *request) (*answer, error) {
	p := q.params()
	connect := p.oneOf("connect", yesOrNo...) == "true"
	if err := p.err(); err != nil {
		return nil, err
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	var uid endpointEdit
	uid.guard, uid.tenant, uid.book, uid.now = a.cfg.Guard, &q.tenant, book, q.now
	if err := fillBody(q, raw, endpointPutFields, &uid); err != nil {
		return nil, err
	}
	view := checkedView{Would: "create"}
	var judged outbox.Endpoint
	_, _, err = q.store.PutEndpoint(q.Context(), q.tenant.TenantRef, outbox.EndpointRef{UID: uid.UID}, q.now, func(e *outbox.Endpoint, exists bool) error {
		edit, fields := a.edit(q, e, exists, book), endpointFields
		if exists {
			view.Would, fields = "update", endpointPutFields
		}
		if err := fillEdit(q, raw, fields, edit); err != nil {
			return err
		}
		judged = edit.Endpoint
		return errChecked
	})
	if !errors.Is(err, errChecked) {
		return nil, err
	}
	view.URL = judged.URL
	if connect && a.cfg.Trier != nil {
		tried := a.cfg.Trier.Try(&judged, &q.tenant, book)
		view.Connection = &connectionView{
			OK: tried.Kind == "", Kind: orNull(string(tried.Kind)), Message: orNull(tried.Message),
			CertificateUntil: stampOf(tried.CertificateUntil), ClientCertificate: tried.ClientCertificate,
		}
	}
	return ok(view)
}
