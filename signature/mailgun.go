package signature

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strconv"
	"time"
)

// MailgunToken signs a time and a token, which are inside the body; the rest of the body is not
// signed at all. Verified.ID is the token, so whoever holds an old body and changes it sends "a
// repeat".
//
// It reads the body before it is verified, because that is where the signature is: JSON as webhooks
// have it, or a form as routes do.
type MailgunToken struct {
	// Tolerance is how old the time may be. Default 12 hours, for Mailgun tries for eight. It may be
	// 5 minutes ahead.
	Tolerance time.Duration
}

// Key is Scheme's.
func (MailgunToken) Key(secret string) (Key, error) {
	if err := verbatim(secret); err != nil {
		return Key{}, err
	}
	return Key{raw: []byte(secret), macs: macPool([]byte(secret), crypto.SHA256)}, nil
}

// Headers is Scheme's: there are none.
func (MailgunToken) Headers() []string { return nil }

type mailgunSignature struct {
	Timestamp json.RawMessage `json:"timestamp"` // a string, or a number
	Token     string          `json:"token"`
	Signature string          `json:"signature"`
}

// Verify is Scheme's.
func (s MailgunToken) Verify(_ context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	m, err := readMailgun(&r)
	if err != nil {
		return Verified{}, err
	}
	timestamp := string(m.Timestamp)
	if unquoted, err := strconv.Unquote(timestamp); err == nil {
		timestamp = unquoted
	}
	seconds, err := parseTimestamp(timestamp)
	if err != nil {
		return Verified{}, refuse(Malformed, "the timestamp is not a plain decimal number of seconds")
	}
	if err := checkID(m.Token, "the token"); err != nil {
		return Verified{}, err
	}
	got, err := hex.DecodeString(m.Signature)
	if err != nil || len(got) != crypto.SHA256.Size() {
		return Verified{}, refuse(Malformed, "the signature is not the hexadecimal of a SHA-256 MAC")
	}
	key := -1
	var buf [64]byte
	for i, k := range keys {
		if k.macs != nil && hmac.Equal(got, k.mac(buf[:0], []byte(timestamp), []byte(m.Token))) && key < 0 {
			key = i
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, "the signature was not made with a key of this source over this time and token")
	}
	past := s.Tolerance
	if past == 0 {
		past = 12 * time.Hour
	}
	at, err := within(time.Unix(seconds, 0), now, past, min(past, DefaultTolerance))
	if err != nil {
		return Verified{}, err
	}
	return Verified{ID: m.Token, At: at, Key: key}, nil
}

func readMailgun(r *Request) (mailgunSignature, error) {
	var m mailgunSignature
	missing := refuse(Missing, "the body has no timestamp, token and signature")
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	field := func(name, value string) {
		switch name {
		case "timestamp":
			m.Timestamp = json.RawMessage(value)
		case "token":
			m.Token = value
		case "signature":
			m.Signature = value
		}
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(r.Body))
		if err != nil {
			return m, refuse(Malformed, "the form cannot be read")
		}
		for _, name := range []string{"timestamp", "token", "signature"} {
			if len(form[name]) > 1 {
				return m, refuse(Malformed, "the form has "+name+" twice")
			}
			field(name, form.Get(name))
		}
	case "multipart/form-data":
		parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				return m, refuse(Malformed, "the form cannot be read")
			}
			value, err := io.ReadAll(io.LimitReader(part, maxIDBytes+1))
			if err != nil {
				return m, refuse(Malformed, "the form cannot be read")
			}
			field(part.FormName(), string(value))
		}
	default:
		var body struct {
			Signature mailgunSignature `json:"signature"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return m, refuse(Malformed, "the body is neither JSON with a signature, nor a form")
		}
		m = body.Signature
	}
	if len(m.Timestamp) == 0 || m.Token == "" || m.Signature == "" {
		return m, missing
	}
	return m, nil
}

// Sign is SigningScheme's: it puts "signature" at the front of a JSON object.
func (MailgunToken) Sign(r *Request, id string, keys []Key, now time.Time) error {
	body := bytes.TrimLeft(r.Body, " \t\r\n")
	if len(body) == 0 || body[0] != '{' {
		return fmt.Errorf("signature: Mailgun's signature goes into a JSON object, and the body is none")
	}
	if len(keys) == 0 || keys[0].macs == nil {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	if err := checkID(id, "the token"); err != nil {
		return err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	mac := hex.EncodeToString(keys[0].mac(nil, []byte(timestamp), []byte(id)))
	head, err := json.Marshal(map[string]string{"timestamp": timestamp, "token": id, "signature": mac})
	if err != nil {
		return err
	}
	rest := bytes.TrimLeft(body[1:], " \t\r\n")
	signed := append([]byte(`{"signature":`), head...)
	if len(rest) > 0 && rest[0] != '}' {
		signed = append(signed, ',')
	}
	r.Body = append(signed, rest...)
	return nil
}

// NewKey is SigningScheme's.
func (s MailgunToken) NewKey() (string, Key, error) { return randomHex(s, 16) }
