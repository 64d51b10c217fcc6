package signature

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"time"
)

// TwilioForm signs the URL and the sorted form fields with SHA-1. A JSON body is signed by its
// SHA-256 in the URL's query, bodySHA256, which must then be there and right.
//
// It reads the form before it is verified, because the form is what is signed, and refuses a
// repeated field: others look at the first value only, so that a second passed unsigned. The scheme
// has no separator between fields, and no time, so an old request can be sent again.
type TwilioForm struct{}

const (
	twilioHeader = "X-Twilio-Signature"
	bodySHA256   = "bodySHA256"
	maxFields    = 1000
)

// Key is Scheme's.
func (TwilioForm) Key(secret string) (Key, error) {
	if err := verbatim(secret); err != nil {
		return Key{}, err
	}
	return Key{raw: []byte(secret), macs: macPool([]byte(secret), crypto.SHA1)}, nil
}

// Headers is Scheme's.
func (TwilioForm) Headers() []string { return []string{twilioHeader} }

// Verify is Scheme's. The URL is tried as it is given, without its port, and with its scheme's own
// port: proxies and Twilio differ about it.
func (TwilioForm) Verify(_ context.Context, r Request, keys []Key, _ time.Time) (Verified, error) {
	text, err := one(r.Header, twilioHeader)
	if err != nil {
		return Verified{}, err
	}
	got, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(got) != sha1.Size {
		return Verified{}, refuse(Malformed, twilioHeader+" is not the base64 of a SHA-1 MAC")
	}
	fields, err := twilioFields(&r)
	if err != nil {
		return Verified{}, err
	}
	key := -1
	var buf [sha1.Size]byte
	for _, u := range twilioURLs(r.URL) {
		for i, k := range keys {
			if k.macs != nil && hmac.Equal(got, k.mac(buf[:0], []byte(u), fields)) && key < 0 {
				key = i
			}
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, "the signature was not made with a key of this source over this URL and these fields; is the public URL the one that Twilio calls?")
	}
	return Verified{Key: key}, nil
}

// twilioFields is the part of the signed text that comes from the body.
func twilioFields(r *Request) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, refuse(Malformed, "the URL cannot be read")
	}
	if want := u.Query().Get(bodySHA256); want != "" {
		sum := sha256.Sum256(r.Body)
		if !hmac.Equal([]byte(want), []byte(hex.EncodeToString(sum[:]))) {
			return nil, refuse(Mismatch, "the body is not the one that bodySHA256 in the URL is of")
		}
		return nil, nil
	}
	if len(r.Body) == 0 {
		return nil, nil
	}
	if kind != "application/x-www-form-urlencoded" {
		return nil, refuse(Malformed, "a body that is no form must come with bodySHA256 in the URL")
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil || len(form) > maxFields {
		return nil, refuse(Malformed, "the form cannot be read")
	}
	names := make([]string, 0, len(form))
	for name, all := range form {
		if len(all) != 1 {
			return nil, refuse(Malformed, "the form has a field twice")
		}
		names = append(names, name)
	}
	slices.Sort(names)
	var text []byte
	for _, name := range names {
		text = append(append(text, name...), form[name][0]...)
	}
	return text, nil
}

// twilioURLs are the ways to write one address. Only the port is touched: Twilio signs the rest as
// it was configured, so nothing else may be made canonical.
func twilioURLs(raw string) []string {
	all := []string{raw}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return all
	}
	scheme := u.Scheme + "://"
	if len(raw) < len(scheme) || raw[:len(scheme)] != scheme {
		return all
	}
	authority := len(scheme) + len(u.Host)
	if u.User != nil {
		authority += len(u.User.String()) + 1
	}
	if authority > len(raw) || raw[authority-len(u.Host):authority] != u.Host {
		return all
	}
	if port := u.Port(); port != "" {
		return append(all, raw[:authority-len(port)-1]+raw[authority:])
	}
	standard := ":443"
	if u.Scheme == "http" {
		standard = ":80"
	}
	return append(all, raw[:authority]+standard+raw[authority:])
}

// Sign is SigningScheme's. A body that is no form needs its bodySHA256 in r.URL.
func (TwilioForm) Sign(r *Request, _ string, keys []Key, _ time.Time) error {
	fields, err := twilioFields(r)
	if err != nil {
		return err
	}
	if len(keys) == 0 || keys[0].macs == nil {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	r.Header.Set(twilioHeader, base64.StdEncoding.EncodeToString(keys[0].mac(nil, []byte(r.URL), fields)))
	return nil
}

// NewKey is SigningScheme's.
func (s TwilioForm) NewKey() (string, Key, error) { return randomHex(s, 16) }

// randomHex is a verbatim secret of n random bytes.
func randomHex(s Scheme, n int) (string, Key, error) {
	raw := make([]byte, n)
	rand.Read(raw)
	secret := hex.EncodeToString(raw)
	key, err := s.Key(secret)
	return secret, key, err
}
