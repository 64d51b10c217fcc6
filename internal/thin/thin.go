// Package thin makes and checks what a thin delivery carries: an address where the payload can
// be fetched for a while, instead of the payload.
//
// The address is signed, so it needs no key, and it says until when it answers. It is made anew
// for every attempt. It names the event and its tenant, and nothing about either.
package thin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Path begins the path of every address, below the public URL.
const Path = "/payloads/"

// Links makes addresses. It is safe for concurrent use.
type Links struct {
	base func() *url.URL
	keys [][]byte // the current one, then older ones that only verify
}

// New makes links below a public URL, which is asked for each time (where the server listens may
// not be known yet), signed by the first of the keys. There must be one.
func New(publicURL func() *url.URL, keys [][]byte) *Links {
	return &Links{base: publicURL, keys: keys}
}

// Event is what an address is about.
type Event struct {
	ID        outbox.EventID
	Tenant    outbox.TenantID
	Type      string
	CreatedAt time.Time
}

// body is what is sent in place of the payload.
type body struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	CreatedAt string `json:"created_at"`
	URL       string `json:"url"`
	ExpiresAt string `json:"expires_at"`
}

const stamp = "2006-01-02T15:04:05.000Z"

// Body is the body of a thin delivery whose address answers until the given time.
func (l *Links) Body(e Event, until time.Time) []byte {
	until = until.Truncate(time.Second)
	text, err := json.Marshal(body{
		ID:        e.ID.String(),
		Type:      e.Type,
		CreatedAt: e.CreatedAt.UTC().Format(stamp),
		URL:       l.url(e.Tenant, e.ID, until),
		ExpiresAt: until.UTC().Format(stamp),
	})
	if err != nil {
		panic(fmt.Sprintf("thin: strings do not fail: %v", err))
	}
	return text
}

func (l *Links) url(tenant outbox.TenantID, event outbox.EventID, until time.Time) string {
	t, expires := strconv.FormatInt(int64(tenant), 10), strconv.FormatInt(until.Unix(), 10)
	q := url.Values{"tenant": {t}, "expires": {expires}, "signature": {sign(l.keys[0], t, event.String(), expires)}}
	return l.base().String() + Path + event.String() + "?" + q.Encode()
}

// sign covers all of an address that is not the same in every other.
func sign(key []byte, tenant, event, expires string) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%s\n%s", tenant, event, expires)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Verify reads the parts of an address and returns whose event it is about, and until when it
// answers; ok is false where it was not made here.
func (l *Links) Verify(event outbox.EventID, q url.Values) (tenant outbox.TenantID, until time.Time, ok bool) {
	t, expires, signature := q.Get("tenant"), q.Get("expires"), q.Get("signature")
	for _, key := range l.keys {
		if hmac.Equal([]byte(sign(key, t, event.String(), expires)), []byte(signature)) {
			id, err1 := strconv.ParseInt(t, 10, 64)
			seconds, err2 := strconv.ParseInt(expires, 10, 64)
			if err1 != nil || err2 != nil {
				return 0, time.Time{}, false
			}
			return outbox.TenantID(id), time.Unix(seconds, 0), true
		}
	}
	return 0, time.Time{}, false
}
