package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// As returns a way to call the API within the process, as somebody the caller has already found
// out about: the pages are clients of the API like any other, so they can do nothing that it does
// not allow, and every refusal of theirs is its own. No connection is made and no key is needed;
// a key in the request is not looked at.
func (a *API) As(who Holder) http.RoundTripper { return within{api: a, who: who} }

type within struct {
	api *API
	who Holder
}

// RoundTrip answers the request. It returns no error: what goes wrong is a problem in the answer.
func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	page := &known{buffered: buffered{header: http.Header{}, status: http.StatusOK}, who: w.who}
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	w.api.ServeHTTP(page, r)
	return &http.Response{
		Status:        http.StatusText(page.status),
		StatusCode:    page.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        page.header,
		Body:          io.NopCloser(bytes.NewReader(page.body)),
		ContentLength: int64(len(page.body)),
		Request:       r,
	}, nil
}

// known is the answer to somebody who needs no key. It is told by its type, which nothing that
// arrives over a connection can have.
type known struct {
	buffered
	who Holder
}

// holder returns who sent the request that w answers.
func (a *API) holder(w http.ResponseWriter, r *http.Request) (Holder, error) {
	if k, is := w.(*known); is {
		return k.who, nil
	}
	who, err := a.holders.of(r)
	if p, refused := errors.AsType[*Problem](err); refused && p.Code == CodeUnauthorized {
		if wait := a.failures.take(a.addressOf(r), time.Now()); wait > 0 {
			return Holder{}, tooMany(wait, "too many requests without a valid key came from this address")
		}
	}
	return who, err
}

// admit makes a caller who asks for more than its share wait. Operators are not bound: what they
// publish is limited by what the database bears, and answered 503 then.
func (a *API) admit(who *Holder) error {
	if who.Operator() {
		return nil
	}
	actor := who.actor()
	if wait := a.rates.take(who.Tenant+" "+actor.ID+" "+actor.Name, time.Now()); wait > 0 {
		return tooMany(wait, "the key sends more requests than it may")
	}
	return nil
}

// Nowhere answers that there is nothing at an address, as the API says it.
func (a *API) Nowhere() http.Handler {
	return a.serve(&route{path: "/", calls: a.metrics.of(&route{method: "any", path: "nowhere"}), handle: func(*API, *request) (*answer, error) {
		return nil, fail(CodeNotFound, "there is nothing at this address")
	}})
}
