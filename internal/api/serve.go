package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// request is one call on its way through its handler.
type request struct {
	*http.Request
	route    *route
	id       string
	who      Holder
	now      time.Time      // database time, read once
	tenant   outbox.Tenant  // of routes below /v1/tenants/{tenant}
	store    Store          // puts on record what is changed through it
	author   *outbox.Author // of the record; nil where nothing is
	body     []byte
	bodyRead bool // to its end
	lenient  bool // Prefer: handling=lenient
	within   bool // called in this process, by As
}

// answer is what a handler wants sent.
type answer struct {
	status   int
	body     any    // marshalled, unless raw is set
	raw      []byte // sent as it stands
	kind     string // content type of raw; application/json where empty
	location string
	replayed bool // Idempotent-Replayed
	headers  http.Header
	// stream writes the answer itself, for as long as the reader stays; it is no part of the request's
	// time.
	stream func(ctx context.Context, w http.ResponseWriter)
}

func ok(body any) (*answer, error) { return &answer{status: http.StatusOK, body: body}, nil }
func accepted(body any) (*answer, error) {
	return &answer{status: http.StatusAccepted, body: body}, nil
}

func noContent() (*answer, error) { return &answer{status: http.StatusNoContent}, nil }

// Header values that never change, shared by all answers.
var (
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
	yes         = []string{"true"}
)

// serve wraps a route's handler.
func (a *API) serve(r *route) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		began := time.Now()
		q := &request{Request: hr, route: r, id: a.ids.next()}
		h := w.Header()
		h["Waybill-Request-Id"] = []string{q.id}
		h["X-Content-Type-Options"] = noSniff
		h["Cache-Control"] = noStore
		ctx, cancel := context.WithTimeout(hr.Context(), a.cfg.RequestTimeout)
		defer cancel()
		q.Request = hr.WithContext(ctx)

		ans, err := a.answer(q, w)
		status := 0
		if err != nil {
			p := problemOf(err)
			status = p.Status
			a.logProblem(q, p)
			q.refuse(w, p)
		} else {
			status = ans.status
			if ans.stream != nil {
				r.calls.observe(status, time.Since(began)) // what follows is no request's length
				ans.stream(hr.Context(), w)
				return
			}
			ans.write(w)
		}
		r.calls.observe(status, time.Since(began))
	}
}

// answer runs everything up to the answer.
func (a *API) answer(q *request, w http.ResponseWriter) (ans *answer, err error) {
	defer func() {
		if defect := recover(); defect != nil {
			ans, err = nil, fmt.Errorf("panic: %v\n%s", defect, debug.Stack())
		}
	}()
	r := q.route
	_, q.within = w.(*known)
	if r.scope != "" {
		if q.who, err = a.holder(w, q.Request); err != nil {
			return nil, err
		}
		if !q.who.May(r.scope) || r.operator && !q.who.Operator() {
			return nil, fail(CodeForbidden, "the key lacks the scope for this")
		}
		if err := a.admit(&q.who); err != nil {
			return nil, err
		}
	}
	q.now = a.cfg.Clock.Now()
	q.lenient = prefersLenient(q.Header)
	if r.scope != "" && r.query == nil && q.URL.RawQuery != "" {
		if err := q.params().err(); err != nil { // the route knows no parameter at all
			return nil, err
		}
	}
	if r.maxBody > 0 {
		if err := q.readBody(w, r.limit(a.cfg.MaxPayload)); err != nil {
			return nil, err
		}
	}
	if r.ofTenant {
		if q.tenant, err = a.tenantOf(q); err != nil {
			return nil, err
		}
	}
	a.begin(q)
	if r.idempotent && q.Header["Idempotency-Key"] != nil {
		return a.once(q)
	}
	return r.handle(a, q)
}

// What a client may still send after its refusal.
const (
	drainBytes = 2 * outbox.MaxBatchBytes
	drainTime  = 5 * time.Second
)

// refuse sends a problem. Most clients read nothing before they have written their whole body;
// closing the connection on them would make a broken pipe of the answer. So the answer goes out,
// and then what is left of the body is read and thrown away, within bounds. Who asked with
// Expect: 100-continue was waiting, and sends nothing more.
func (q *request) refuse(w http.ResponseWriter, p *Problem) {
	if q.ContentLength == 0 || q.bodyRead || q.Header.Get("Expect") != "" {
		p.write(w, q.id)
		return
	}
	// Errors here mean that the connection is no real one or gone: then the answer is all there is.
	conn := http.NewResponseController(w)
	_ = conn.EnableFullDuplex() // or the answer would wait for the body
	p.write(w, q.id)
	_ = conn.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, q.Body, drainBytes)
}

// prefersLenient reads Prefer: handling=lenient (RFC 7240).
func prefersLenient(h http.Header) bool {
	for _, line := range h["Prefer"] {
		for part := range strings.SplitSeq(line, ",") {
			preference, _, _ := strings.Cut(part, ";")
			name, value, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.TrimSpace(name), "handling") && strings.EqualFold(strings.Trim(value, ` "`), "lenient") {
				return true
			}
		}
	}
	return false
}

// readBody reads the whole body, at most limit bytes.
func (q *request) readBody(w http.ResponseWriter, limit int64) error {
	if q.ContentLength == 0 {
		return nil
	}
	if err := checkMedia(q.Header, q.Method); err != nil {
		return err
	}
	if q.ContentLength > limit {
		return tooLarge(limit)
	}
	body := http.MaxBytesReader(w, q.Body, limit)
	var err error
	if q.ContentLength > 0 {
		q.body = make([]byte, q.ContentLength)
		_, err = io.ReadFull(body, q.body)
	} else {
		q.body, err = io.ReadAll(body)
	}
	switch {
	case err == nil:
		q.bodyRead = true
		return nil
	case isTooLarge(err):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(CodeTimeout, "the body did not arrive in time")
	}
	p := fail(CodeBadRequest, "the body ended early")
	p.cause = err
	return p
}

func isTooLarge(err error) bool {
	_, is := errors.AsType[*http.MaxBytesError](err)
	return is
}

func tooLarge(limit int64) error {
	return fail(CodePayloadTooLarge, "the request is larger than %d bytes", limit)
}

// checkMedia accepts JSON, as it is. A missing Content-Type is taken for JSON (RFC 9110, 8.3).
func checkMedia(h http.Header, method string) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return fail(CodeUnsupportedMedia, "the body is compressed; send it as it is")
	}
	kind, params, _ := strings.Cut(h.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if kind != "" && kind != "application/json" && !(method == http.MethodPatch && kind == "application/merge-patch+json") {
		return fail(CodeUnsupportedMedia, "send Content-Type: application/json")
	}
	if name, charset, is := strings.Cut(params, "="); is && strings.EqualFold(strings.TrimSpace(name), "charset") &&
		!strings.EqualFold(strings.Trim(charset, ` "`), "utf-8") {
		return fail(CodeUnsupportedMedia, "JSON is UTF-8; the Content-Type names another charset")
	}
	return nil
}

// bytes is the body as it is sent.
func (ans *answer) bytes() ([]byte, error) {
	if ans.raw != nil {
		return ans.raw, nil
	}
	raw, err := json.Marshal(ans.body)
	return append(raw, '\n'), err
}

func (ans *answer) write(w http.ResponseWriter) {
	h := w.Header()
	if ans.status == http.StatusNoContent {
		maps.Copy(h, ans.headers)
		w.WriteHeader(ans.status)
		return
	}
	raw, err := ans.bytes()
	if err != nil {
		panic(err) // the bodies are structs of ours; the server's recovery cuts the connection
	}
	maps.Copy(h, ans.headers)
	if ans.kind != "" {
		h["Content-Type"] = []string{ans.kind}
	} else {
		h["Content-Type"] = plainJSON
	}
	if ans.location != "" {
		h.Set("Location", ans.location)
	}
	if ans.replayed {
		h["Idempotent-Replayed"] = yes
	}
	h["Content-Length"] = []string{strconv.Itoa(len(raw))}
	w.WriteHeader(ans.status)
	_, _ = w.Write(raw) // the caller is gone; nobody is left to tell
}

// logProblem puts on record what the caller is not told.
func (a *API) logProblem(q *request, p *Problem) {
	if p.cause == nil {
		return
	}
	if p.Status == http.StatusInternalServerError {
		a.cfg.Log.ErrorContext(q.Context(), "request failed", "request_id", q.id, "route", q.Pattern, "error", p.cause)
		return
	}
	a.cfg.Log.DebugContext(q.Context(), "request refused", "request_id", q.id, "route", q.Pattern, "code", p.Code, "error", p.cause)
}

// noRoute answers what no route matches: 405 where another method would, else 404. Below /v1 a
// key is asked for first, so that strangers learn nothing of what is there.
func (a *API) noRoute(q *request) (*answer, error) {
	if strings.HasPrefix(q.URL.Path, "/v1/") && !q.within {
		if _, err := a.holder(nil, q.Request); err != nil {
			return nil, err
		}
	}
	var allow []string
	if !namesSomething(q.URL) {
		return nil, fail(CodeNotFound, "there is nothing at this address")
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: q.URL, Host: q.Host}
		if _, pattern := a.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, method)
		}
	}
	if len(allow) == 0 {
		return nil, fail(CodeNotFound, "there is nothing at this address")
	}
	p := fail(CodeMethodNotAllowed, "this address takes %s", strings.Join(allow, ", "))
	p.allow = strings.Join(allow, ", ")
	return nil, p
}

// requestIDs numbers requests; no two processes share a prefix.
type requestIDs struct {
	prefix string
	last   *atomic.Uint64
}

func newRequestIDs() requestIDs {
	return requestIDs{prefix: "req_" + strconv.FormatUint(rand.Uint64()|1<<63, 36) + "_", last: new(atomic.Uint64)}
}

func (ids requestIDs) next() string {
	buf := make([]byte, 0, len(ids.prefix)+13)
	buf = append(buf, ids.prefix...)
	return string(strconv.AppendUint(buf, ids.last.Add(1), 36))
}
