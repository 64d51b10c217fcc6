package portal

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/client"
)

// Face is one of the sides people see: it finds out who looks, and what surrounds their pages.
type Face interface {
	// Open returns who looks. An error is shown as a page.
	Open(v *Visit) (Visitor, error)
}

// Visitor is who looks at a page.
type Visitor struct {
	// Who the API is called as.
	Who api.Holder
	// Tenant is whose pages these are; "" on the operator's side.
	Tenant string
	// May says whether an act of this name is permitted; nil: every one. Acts that are not
	// are absent from pages, and refused where they are asked for all the same.
	May   func(act string) bool
	Frame Frame
}

// Frame is what surrounds a page.
type Frame struct {
	Small  string // beside the instance's name
	Home   string // what the name leads to; "": it is no link
	Nav    []Link
	Search string // the address of a search form (?q=); "": none
	Back   *Link  // out of here, to the host's own pages
	// Note stands in the footer: who is signed in, and as what.
	Note    string
	Until   time.Time // when the session ends; zero: not said
	SignOut string    // the address of a POST that ends the session; "": none
	// Prefs is the address of the form that changes theme and time zone.
	Prefs string
	// Framed says that the page is shown in a frame of the host's.
	Framed bool
	// Accent replaces the instance's colour; see Look.
	Accent string
	// Mode is the theme for who did not choose one: light, dark; else the system's.
	Mode string
}

// Link is an address and its name.
type Link struct{ URL, Name string }

// stranger is the face of pages that nobody in particular looks at.
type stranger struct{}

func (stranger) Open(v *Visit) (Visitor, error) {
	return Visitor{Frame: Frame{Prefs: v.Path("preferences"), Framed: framed(v.Request)}}, nil
}

// Visit is one request for a page.
type Visit struct {
	*http.Request
	Visitor
	Now time.Time // database time, read once
	ID  string    // of the request, for the log

	base  *Base
	w     http.ResponseWriter
	prefs prefs
	api   *client.Client
}

// visit wraps a page's handler.
func (b *Base) visit(face Face, page func(*Visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &Visit{Request: r, Now: b.cfg.Clock.Now(), ID: "page_" + rand.Text()[:12], base: b, w: w, prefs: prefsOf(r)}
		b.guard(w.Header())
		if _, operators := face.(*operator); operators || strings.HasPrefix(r.URL.Path, "/sign-in") {
			b.unframed(w.Header())
		}
		w.Header().Set("Waybill-Request-Id", v.ID)
		err := v.run(face, page)
		if err != nil {
			v.fail(err)
		}
	}
}

func (v *Visit) run(face Face, page func(*Visit) error) (err error) {
	defer func() {
		if defect := recover(); defect != nil {
			err = fmt.Errorf("panic: %v\n%s", defect, debug.Stack())
		}
	}()
	visitor, err := face.Open(v)
	if err != nil {
		if v.Frame.Prefs == "" {
			v.Visitor, _ = stranger{}.Open(v)
		}
		return err
	}
	v.Visitor = visitor
	v.api, err = client.New(client.Config{URL: "http://waybill.invalid", Transport: v.base.cfg.API.As(visitor.Who)})
	if err != nil {
		return err
	}
	return page(v)
}

// Path is the address of one of our pages; see Base.Path.
func (v *Visit) Path(parts ...string) string { return v.base.Path(parts...) }

// API is the client that acts as who looks.
func (v *Visit) API() *client.Client { return v.api }

// As calls the API with other scopes than the visitor has by itself, which is how an act that
// was permitted gets to write while everything else only reads.
func (v *Visit) As(scopes ...api.Scope) *client.Client {
	who := v.Who
	who.Scopes = scopes
	c, err := client.New(client.Config{URL: "http://waybill.invalid", Transport: v.base.cfg.API.As(who)})
	if err != nil {
		panic(err) // the address is a constant
	}
	return c
}

// Ask reads from the API. path is made with client.Path.
func Ask[T any](v *Visit, path string, query url.Values) (T, error) {
	answer, _, err := client.Call[T](v.Context(), v.api, client.Request{Path: path, Query: query})
	return answer, err
}

// Tell has the API do something, as c. key makes a POST safe to repeat; "" for none.
func Tell[T any](ctx context.Context, c *client.Client, method, path string, body []byte, key string) (T, error) {
	answer, _, err := client.Call[T](ctx, c, client.Request{Method: method, Path: path, Body: body, IdempotencyKey: key})
	return answer, err
}

// Key is the idempotency key of the form that was sent; "" if it has none.
func (v *Visit) Key() string { return v.PostFormValue("idempotency_key") }

// Redirect answers an act: the browser goes on to path, and what happened is said there.
func (v *Visit) Redirect(path, say string) error {
	if say != "" {
		v.setCookie(cookieFlash, encodeFlash(say), 60)
	}
	http.Redirect(v.w, v.Request, path, http.StatusSeeOther)
	return nil
}

// Header is the header of the answer.
func (v *Visit) Header() http.Header { return v.w.Header() }

// Writer is where an answer that is no page is written.
func (v *Visit) Writer() http.ResponseWriter { return v.w }
