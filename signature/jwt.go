package signature

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"
)

// JWTBody is a body that is a JSON Web Token, signed with RS256 and nothing else (Wix). What the
// token says of its own time is not looked at: whether each attempt is signed anew is not published.
type JWTBody struct{}

// minRSA is the smallest key that is taken, in bits.
const minRSA = 2048

// Key is Scheme's: an RSA public key in PEM, or its base64 alone. A private key can sign.
func (JWTBody) Key(secret string) (Key, error) {
	if err := readable(secret); err != nil {
		return Key{}, err
	}
	var raw []byte
	if block, _ := pem.Decode([]byte(secret)); block != nil {
		raw = block.Bytes
	} else {
		var err error
		if raw, err = decodeBase64(secret); err != nil {
			return Key{}, fmt.Errorf("%w: is neither PEM nor base64", ErrSecret)
		}
	}
	if public, err := x509.ParsePKIXPublicKey(raw); err == nil {
		if p, ok := public.(*rsa.PublicKey); ok && p.N.BitLen() >= minRSA {
			return Key{public: p}, nil
		}
	}
	if private, err := x509.ParsePKCS8PrivateKey(raw); err == nil {
		if p, ok := private.(*rsa.PrivateKey); ok && p.N.BitLen() >= minRSA {
			return Key{private: p, public: &p.PublicKey}, nil
		}
	}
	return Key{}, fmt.Errorf("%w: is not an RSA public key of %d bits or more", ErrSecret, minRSA)
}

// Headers is Scheme's: there are none.
func (JWTBody) Headers() []string { return nil }

// Verify is Scheme's.
func (JWTBody) Verify(_ context.Context, r Request, keys []Key, _ time.Time) (Verified, error) {
	end := bytes.LastIndexByte(r.Body, '.')
	if end < 0 || bytes.Count(r.Body, []byte{'.'}) != 2 {
		return Verified{}, refuse(Missing, "the body is not a JSON Web Token")
	}
	head, _, _ := bytes.Cut(r.Body, []byte{'.'})
	var header struct {
		Algorithm string          `json:"alg"`
		Critical  json.RawMessage `json:"crit"`
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(string(head))
	if err != nil || json.Unmarshal(text, &header) != nil {
		return Verified{}, refuse(Malformed, "the token's header cannot be read")
	}
	// The key says how it is used, and never the sender.
	if header.Algorithm != "RS256" || header.Critical != nil {
		return Verified{}, refuse(Malformed, "the token is not signed with RS256 alone")
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(string(r.Body[end+1:]))
	if err != nil {
		return Verified{}, refuse(Malformed, "the token's signature cannot be read")
	}
	sum := sha256.Sum256(r.Body[:end])
	for i, k := range keys {
		if public, ok := k.public.(*rsa.PublicKey); ok && rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], got) == nil {
			return Verified{Key: i}, nil
		}
	}
	return Verified{}, refuse(Mismatch, "the token was not signed with a key of this source")
}

// Claims is what a token says, as its sender wrote it. It does not verify it.
func (JWTBody) Claims(body []byte) ([]byte, error) {
	parts := bytes.Split(body, []byte{'.'})
	if len(parts) != 3 {
		return nil, fmt.Errorf("signature: the body is not a JSON Web Token")
	}
	return base64.RawURLEncoding.Strict().DecodeString(string(parts[1]))
}

// Sign is SigningScheme's: the body becomes the claims of a token.
func (JWTBody) Sign(r *Request, _ string, keys []Key, _ time.Time) error {
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(r.Body)
	sum := sha256.Sum256([]byte(token))
	sig, err := signWith(keys, sum[:], crypto.SHA256)
	if err == nil {
		r.Body = []byte(token + "." + base64.RawURLEncoding.EncodeToString(sig))
	}
	return err
}

// NewKey is SigningScheme's: the secret is the private key.
func (s JWTBody) NewKey() (string, Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		return "", Key{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", Key{}, err
	}
	return base64.StdEncoding.EncodeToString(raw), Key{private: private, public: &private.PublicKey}, nil
}
