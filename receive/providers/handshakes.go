package providers

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

// slackChallenge is how Slack asks whether the address is meant: say it back.
func slackChallenge(r signature.Request, _ string) (receive.Reply, bool) {
	var v struct{ Type, Challenge string }
	if json.Unmarshal(r.Body, &v) != nil || v.Type != "url_verification" {
		return receive.Reply{}, false
	}
	return receive.Reply{ContentType: "text/plain", Body: []byte(v.Challenge)}, true
}

// discordPing is type 0; events are type 1.
func discordPing(r signature.Request, _ string) (receive.Reply, bool) {
	v := struct{ Type *int }{}
	if json.Unmarshal(r.Body, &v) != nil || v.Type == nil || *v.Type != 0 {
		return receive.Reply{}, false
	}
	return receive.Reply{Status: http.StatusNoContent}, true
}

// metaChallenge compares the token, because nothing is signed.
func metaChallenge(r signature.Request, token string) (receive.Reply, bool) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return receive.Reply{}, false
	}
	q := u.Query()
	if q.Get("hub.mode") != "subscribe" || subtle.ConstantTimeCompare([]byte(q.Get("hub.verify_token")), []byte(token)) != 1 {
		return receive.Reply{}, false
	}
	return receive.Reply{ContentType: "text/plain", Body: []byte(q.Get("hub.challenge"))}, true
}
