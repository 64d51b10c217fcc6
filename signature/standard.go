package signature

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// StandardWebhooks is Standard Webhooks as a Scheme, with both its kinds of signature, chosen by each
// key's prefix: "whsec_" (or bare base64) is a shared secret and v1; "whpk_" is the public half of an
// Ed25519 key and v1a, "whsk_" the private one, which can sign.
//
// Its headers are webhook-id, webhook-timestamp and webhook-signature, or the same with svix- in
// front. One set is used and never mixed: the verified id is that of the set that was verified, so
// that an unsigned svix-id beside a signed webhook-id means nothing.
type StandardWebhooks struct {
	// Tolerance is how far the timestamp may be from now, either way. Default 5 minutes.
	Tolerance time.Duration
}

// sets are the spellings of the headers, those of the standard first.
var sets = [...]struct{ id, timestamp, signature string }{
	{HeaderID, HeaderTimestamp, HeaderSignature},
	{"svix-id", "svix-timestamp", "svix-signature"},
}

const ed25519Version = "v1a,"

// Key is Scheme's.
func (s StandardWebhooks) Key(secret string) (Key, error) {
	switch {
	case strings.HasPrefix(secret, publicPrefix):
		raw, err := decodeBase64(strings.TrimPrefix(secret, publicPrefix))
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("%w: after \"whpk_\" there must be the base64 of %d bytes", ErrSecret, ed25519.PublicKeySize)
		}
		return Key{public: ed25519.PublicKey(raw)}, nil
	case strings.HasPrefix(secret, privatePrefix):
		raw, err := decodeBase64(strings.TrimPrefix(secret, privatePrefix))
		if err == nil && len(raw) == ed25519.SeedSize {
			raw = ed25519.NewKeyFromSeed(raw)
		}
		if err != nil || len(raw) != ed25519.PrivateKeySize {
			return Key{}, fmt.Errorf("%w: after \"whsk_\" there must be the base64 of %d or %d bytes", ErrSecret, ed25519.SeedSize, ed25519.PrivateKeySize)
		}
		private := ed25519.PrivateKey(raw)
		if !private.Equal(ed25519.NewKeyFromSeed(private.Seed())) {
			return Key{}, fmt.Errorf("%w: the two halves of the private key do not belong together", ErrSecret)
		}
		return Key{private: private, public: private.Public()}, nil
	}
	raw, err := decodeSecret(secret)
	if err != nil {
		return Key{}, err
	}
	return Key{raw: raw, macs: macPool(raw, crypto.SHA256)}, nil
}

// Headers is Scheme's.
func (StandardWebhooks) Headers() []string { return []string{sets[0].signature, sets[1].signature} }

// Verify is Scheme's. Verified.ID is the message's id.
func (s StandardWebhooks) Verify(_ context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	set := sets[0]
	for _, other := range sets[1:] {
		if len(values(r.Header, set.id)) == 0 && len(values(r.Header, other.id)) > 0 {
			set = other
		}
	}
	lines := values(r.Header, set.signature)
	if len(lines) == 0 {
		return Verified{}, refuse(Missing, "there is no "+set.signature)
	}
	id, err := one(r.Header, set.id)
	if err != nil {
		return Verified{}, err
	}
	if err := checkID(id, set.id); err != nil {
		return Verified{}, err
	}
	timestamp, err := one(r.Header, set.timestamp)
	if err != nil {
		return Verified{}, err
	}
	seconds, err := parseTimestamp(timestamp)
	if err != nil {
		return Verified{}, refuse(Malformed, set.timestamp+" is not a plain decimal number of seconds")
	}
	found, err := readStandard(lines, set.signature)
	if err != nil {
		return Verified{}, err
	}
	key := found.match(keys, []byte(id+"."+timestamp+"."), r.Body)
	if key < 0 {
		return Verified{}, refuse(Mismatch, "no signature in "+set.signature+" was made with a key of this source over this id, time and these bytes")
	}
	tolerance := s.Tolerance
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	at, err := within(time.Unix(seconds, 0), now, tolerance, tolerance)
	if err != nil {
		return Verified{}, err
	}
	return Verified{ID: id, At: at, Key: key}, nil
}

// standardSignatures are those of one request, decoded.
type standardSignatures struct {
	v1, v1a [][]byte
}

func readStandard(lines []string, name string) (*standardSignatures, error) {
	s := &standardSignatures{}
	total, count := 0, 0
	for _, line := range lines {
		if total += len(line); total > maxHeaderBytes {
			return nil, refuse(Malformed, name+" is too long")
		}
		for token := range strings.FieldsSeq(line) {
			if count++; count > maxSignatures {
				return nil, refuse(Malformed, fmt.Sprintf("%s has more than %d signatures", name, maxSignatures))
			}
			// A proxy joins repeated header lines with ", ".
			token = strings.TrimSuffix(token, ",")
			if text, ok := strings.CutPrefix(token, version); ok {
				if raw, err := base64.StdEncoding.Strict().DecodeString(text); err == nil && len(raw) == sha256.Size {
					s.v1 = append(s.v1, raw)
				}
			} else if text, ok := strings.CutPrefix(token, ed25519Version); ok {
				if raw, err := base64.StdEncoding.Strict().DecodeString(text); err == nil && len(raw) == ed25519.SignatureSize {
					s.v1a = append(s.v1a, raw)
				}
			}
		}
	}
	if len(s.v1)+len(s.v1a) == 0 {
		return nil, refuse(Malformed, "no signature in "+name+" is written as v1,… or v1a,…")
	}
	return s, nil
}

// match tries every signature with every key that could have made it, without an early end.
func (s *standardSignatures) match(keys []Key, head, body []byte) int {
	key := -1
	var buf [sha256.Size]byte
	var message []byte
	for i, k := range keys {
		switch public, isEd := k.public.(ed25519.PublicKey); {
		case k.macs != nil && k.plan == nil:
			want := k.mac(buf[:0], head, body)
			for _, got := range s.v1 {
				if hmac.Equal(got, want) && key < 0 {
					key = i
				}
			}
		case isEd:
			if message == nil && len(s.v1a) > 0 {
				message = append(append(message, head...), body...)
			}
			for _, got := range s.v1a {
				if ed25519.Verify(public, message, got) && key < 0 {
					key = i
				}
			}
		}
	}
	return key
}

// Sign is SigningScheme's. It sets the standard's headers.
func (s StandardWebhooks) Sign(r *Request, id string, keys []Key, now time.Time) error {
	if err := checkID(id, HeaderID); err != nil {
		return err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	head := []byte(id + "." + timestamp + ".")
	var out []string
	for _, k := range keys {
		switch {
		case k.macs != nil && k.plan == nil:
			out = append(out, version+base64.StdEncoding.EncodeToString(k.mac(nil, head, r.Body)))
		case k.private != nil:
			sig, err := k.private.Sign(rand.Reader, append(head[:len(head):len(head)], r.Body...), crypto.Hash(0))
			if err != nil {
				return err
			}
			out = append(out, ed25519Version+base64.StdEncoding.EncodeToString(sig))
		}
	}
	if len(out) == 0 {
		return fmt.Errorf("%w: there is none that can sign", ErrSecret)
	}
	setAll(r.Header, HeaderID, id, HeaderTimestamp, timestamp, HeaderSignature, strings.Join(out, " "))
	return nil
}

// NewKey is SigningScheme's: a shared secret.
func (s StandardWebhooks) NewKey() (string, Key, error) {
	secret := GenerateSecret()
	key, err := s.Key(secret)
	return secret, key, err
}

func setAll(header http.Header, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		header.Set(pairs[i], pairs[i+1])
	}
}
