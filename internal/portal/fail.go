package portal

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waybill-dev/waybill/internal/client"
)

// Trouble is an error that has a page of its own.
type Trouble struct {
	Status int
	Title  string // what happened, without a full stop
	Text   string // how we know, and what is safe
	Next   *Link  // what to do; nil: back to where one came from
	// Alone leaves the sections out: nobody is signed in.
	Alone bool
	// Retry marks what passes by itself; the answer tells the browser to ask again.
	Retry bool
}

func (t *Trouble) Error() string { return fmt.Sprintf("%d: %s", t.Status, t.Title) }

var (
	errNoPage = &Trouble{Status: http.StatusNotFound, Title: "There is nothing at this address",
		Text: "It may have been removed, be older than what is kept, or never have been yours."}
	errCrossOrigin = &Trouble{Status: http.StatusForbidden, Title: "This came from another site, so nothing was done",
		Text: "Acts are taken from these pages alone. Open the page here and press the button again."}
	errBadForm = &Trouble{Status: http.StatusBadRequest, Title: "The form did not arrive whole",
		Text: "Nothing was done. Go back and send it again."}
)

// NotPermitted refuses an act that the visitor's link does not allow.
func NotPermitted(act string) error {
	return &Trouble{Status: http.StatusForbidden, Title: "This link does not let you " + act,
		Text: "Nothing was done. Whoever gave you the link can give one that does."}
}

// troubleOf turns any error into one that can be shown; its cause is for the log alone.
func troubleOf(err error, id string) *Trouble {
	if t, ok := errors.AsType[*Trouble](err); ok {
		return t
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		switch refused.Status {
		case http.StatusNotFound:
			return errNoPage
		case http.StatusForbidden:
			return &Trouble{Status: refused.Status, Title: "You may not do this", Text: "Nothing was done."}
		case http.StatusServiceUnavailable:
			return &Trouble{Status: refused.Status, Retry: true, Title: "The database does not answer right now",
				Text: "Nothing is lost: what was accepted is kept and sent as soon as it answers again. This page can be loaded again in a moment."}
		case http.StatusGone:
			return &Trouble{Status: refused.Status, Title: "The body is no longer kept", Text: "It was erased on request, or is older than what is kept."}
		}
		if refused.Status < http.StatusInternalServerError {
			return &Trouble{Status: refused.Status, Title: "This could not be done", Text: sentence(refused.Detail)}
		}
	}
	return &Trouble{Status: http.StatusInternalServerError, Title: "Something here is broken",
		Text: "It is our fault, and it is in our log as " + id + ". Nothing you sent is lost."}
}

// fail answers with a page about the error.
func (v *Visit) fail(err error) {
	if errors.Is(err, errSignIn) {
		to := v.Path("sign-in")
		if v.Method == http.MethodGet {
			to = withQuery(to, url.Values{"back": {v.base.root + v.URL.RequestURI()}})
		}
		_ = v.Redirect(to, "") // it has no error of its own
		return
	}
	t := troubleOf(err, v.ID)
	if t.Status >= http.StatusInternalServerError && v.Context().Err() == nil {
		v.base.cfg.Log.ErrorContext(v.Context(), "page failed", "request_id", v.ID, "path", v.Pattern, "error", err)
	}
	if t.Alone {
		v.Visitor, _ = stranger{}.Open(v)
	}
	if t.Retry {
		v.Header().Set("Retry-After", "5")
	}
	if shown := v.Show(Page{Name: "trouble", Title: t.Title, Status: t.Status, Data: t}); shown != nil {
		v.base.cfg.Log.ErrorContext(v.Context(), "page failed", "request_id", v.ID, "error", shown)
		http.Error(v.w, t.Title, t.Status)
	}
}
