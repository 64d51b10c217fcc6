package faults

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// receiver is a customer's server. It answers most events with 204, every thirtieth with 404,
// which makes a dead letter, and some first tries with 500.
type receiver struct {
	ledger *ledger
	secret func() string
	url    string
}

func newReceiver(t *testing.T, l *ledger, secret func() string) *receiver {
	r := &receiver{ledger: l, secret: secret}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/in"
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender died in the middle; it has not arrived
	}
	id := req.Header.Get("webhook-id")
	if why := r.unsigned(req, body); why != "" {
		r.ledger.fault("%s: %s", id, why)
	}
	var payload struct {
		N int `json:"n"`
	}
	if err := json.Unmarshal(body, &payload); err != nil {
		r.ledger.fault("%s: body %q: %v", id, body, err)
	}
	r.ledger.arrive(payload.N, id, body)
	// A kill must meet requests at every stage, also while they wait for the answer.
	select {
	case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
	case <-req.Context().Done():
		return
	}
	switch {
	case payload.N%30 == 0:
		http.Error(w, "no such order", http.StatusNotFound)
	case payload.N%17 == 0 && req.Header.Get("waybill-attempt") == "1":
		http.Error(w, "try again", http.StatusInternalServerError) // a 503 would be taken for a plea to slow down
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// unsigned says what is wrong with a request's signature by the Standard Webhooks specification
// 1.0: base64(HMAC-SHA256(key, id + "." + timestamp + "." + body)) after "v1,".
func (r *receiver) unsigned(req *http.Request, body []byte) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.secret(), "whsec_"))
	if err != nil {
		return "the secret is not base64"
	}
	id, stamp := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return "timestamp " + stamp
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if !slices.Contains(strings.Fields(req.Header.Get("webhook-signature")), want) {
		return "the signature is wrong"
	}
	return ""
}
