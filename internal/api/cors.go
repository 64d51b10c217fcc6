package api

import (
	"net/http"
	"slices"
	"strings"
)

// Headers that pages of other origins may send, and may read in answers.
const (
	corsSends  = "Authorization, Content-Type, Idempotency-Key, Prefer"
	corsReads  = "Waybill-Request-Id, Retry-After, Idempotent-Replayed, Location, Allow"
	corsVerbs  = "GET, POST, PUT, PATCH, DELETE"
	corsMaxAge = "600"
)

// cors lets pages of chosen origins call the API, with a key of their own: no cookie counts here,
// so none is ever asked for. It reports whether it answered itself, a preflight.
func (a *API) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.cfg.CORSOrigins) == 0 || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(a.cfg.CORSOrigins, origin) && !slices.Contains(a.cfg.CORSOrigins, "*") {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", corsReads)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsVerbs)
	h.Set("Access-Control-Allow-Headers", corsSends)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	h["Waybill-Request-Id"] = []string{a.ids.next()}
	w.WriteHeader(http.StatusNoContent)
	return true
}
