package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// answerHeaders are the headers of answers, besides those HTTP itself is about.
var answerHeaders = map[string]*huma.Param{
	"Waybill-Request-Id":  {Description: "Names the request in the server's log.", Schema: &huma.Schema{Type: huma.TypeString}},
	"WWW-Authenticate":    {Description: "How to authenticate.", Schema: &huma.Schema{Type: huma.TypeString}},
	"Retry-After":         {Description: "In how many seconds to send the request again.", Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0)}},
	"Location":            {Description: "Where the new object is; without it, at the request's own address.", Schema: &huma.Schema{Type: huma.TypeString}},
	"Idempotent-Replayed": {Description: "true: this is the answer that an earlier request with the same key got.", Schema: &huma.Schema{Type: huma.TypeString}},
}

// headersOf are the headers that the route's answers of a status have: always, or sometimes.
func (r *route) headersOf(status int) (always, sometimes []string) {
	always = []string{"Waybill-Request-Id"}
	keyed := r.idempotent || r.publishes
	switch {
	case status == http.StatusUnauthorized && r.scope != "":
		always = append(always, "WWW-Authenticate")
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && r.scope != "":
		always = append(always, "Retry-After")
	case status == http.StatusServiceUnavailable, status == http.StatusConflict && keyed: // an earlier request with the same key still runs
		sometimes = append(sometimes, "Retry-After")
	case status == http.StatusCreated, status == http.StatusAccepted && r.tag == "Jobs":
		sometimes = append(sometimes, "Location")
	}
	if keyed && status < http.StatusBadRequest {
		sometimes = append(sometimes, "Idempotent-Replayed")
	}
	return always, sometimes
}

// describeHeaders is how the document has them.
func (r *route) describeHeaders(status int) map[string]*huma.Param {
	described := map[string]*huma.Param{}
	always, sometimes := r.headersOf(status)
	for _, name := range append(always, sometimes...) {
		described[name] = &huma.Param{Ref: "#/components/headers/" + name}
	}
	return described
}
