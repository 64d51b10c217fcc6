package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// Ed25519 is Discord's: hexadecimal over timestamp and body, with a public key in hexadecimal.
type Ed25519 struct {
	Header, TimeHeader string
	// Tolerance is how far the timestamp may be from now, either way. Default 5 minutes.
	Tolerance time.Duration
}

// Key is Scheme's. A key of 64 bytes is a private one, which can sign.
func (Ed25519) Key(secret string) (Key, error) {
	if err := readable(secret); err != nil {
		return Key{}, err
	}
	raw, err := hex.DecodeString(secret)
	switch {
	case err == nil && len(raw) == ed25519.PublicKeySize:
		return Key{public: ed25519.PublicKey(raw)}, nil
	case err == nil && len(raw) == ed25519.PrivateKeySize:
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if !private.Equal(ed25519.PrivateKey(raw)) {
			return Key{}, fmt.Errorf("%w: the two halves of the private key do not belong together", ErrSecret)
		}
		return Key{private: private, public: private.Public()}, nil
	}
	return Key{}, fmt.Errorf("%w: is not the hexadecimal of %d bytes, as a public key is", ErrSecret, ed25519.PublicKeySize)
}

// Headers is Scheme's.
func (s Ed25519) Headers() []string { return []string{s.Header} }

// Verify is Scheme's.
func (s Ed25519) Verify(_ context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	text, err := one(r.Header, s.Header)
	if err != nil {
		return Verified{}, err
	}
	got, err := hex.DecodeString(text)
	if err != nil || len(got) != ed25519.SignatureSize {
		return Verified{}, refuse(Malformed, s.Header+" is not the hexadecimal of an Ed25519 signature")
	}
	return verifyTimed(&r, s.TimeHeader, keys, now, s.Tolerance, func(k Key, message []byte) bool {
		public, ok := k.public.(ed25519.PublicKey)
		return ok && ed25519.Verify(public, message, got)
	})
}

// verifyTimed checks a signature over a header's timestamp and the body.
func verifyTimed(r *Request, header string, keys []Key, now time.Time, tolerance time.Duration, fits func(Key, []byte) bool) (Verified, error) {
	timestamp, err := one(r.Header, header)
	if err != nil {
		return Verified{}, err
	}
	seconds, err := parseTimestamp(timestamp)
	if err != nil {
		return Verified{}, refuse(Malformed, header+" is not a plain decimal number of seconds")
	}
	message := append([]byte(timestamp), r.Body...)
	key := -1
	for i, k := range keys {
		if fits(k, message) && key < 0 {
			key = i
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, "the signature was not made with a key of this source over this time and these bytes")
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	at, err := within(time.Unix(seconds, 0), now, tolerance, min(tolerance, DefaultTolerance))
	if err != nil {
		return Verified{}, err
	}
	return Verified{At: at, Key: key}, nil
}

// Sign is SigningScheme's.
func (s Ed25519) Sign(r *Request, _ string, keys []Key, now time.Time) error {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	sig, err := signWith(keys, append([]byte(timestamp), r.Body...), crypto.Hash(0))
	if err != nil {
		return err
	}
	setAll(r.Header, s.TimeHeader, timestamp, s.Header, hex.EncodeToString(sig))
	return nil
}

// signWith signs with the first key that can.
func signWith(keys []Key, digest []byte, h crypto.Hash) ([]byte, error) {
	for _, k := range keys {
		if k.private != nil {
			return k.private.Sign(rand.Reader, digest, h)
		}
	}
	return nil, fmt.Errorf("%w: there is no private key; a public one cannot sign", ErrSecret)
}

// NewKey is SigningScheme's: the secret is the private key.
func (s Ed25519) NewKey() (string, Key, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", Key{}, err
	}
	return hex.EncodeToString(private), Key{private: private, public: public}, nil
}

// ECDSA is SendGrid's: base64 of DER over timestamp and body, with a P-256 public key in base64. The
// body counts to its last byte: SendGrid's ends in CR LF.
type ECDSA struct {
	Header, TimeHeader string
	// Tolerance is how old the timestamp may be. Default 5 minutes. It may be 5 minutes ahead.
	Tolerance time.Duration
}

// Key is Scheme's. A private key in PKCS #8 can sign.
func (ECDSA) Key(secret string) (Key, error) {
	if err := readable(secret); err != nil {
		return Key{}, err
	}
	raw, err := decodeBase64(secret)
	if err != nil {
		return Key{}, fmt.Errorf("%w: is not base64", ErrSecret)
	}
	if public, err := x509.ParsePKIXPublicKey(raw); err == nil {
		if p, ok := public.(*ecdsa.PublicKey); ok && p.Curve == elliptic.P256() {
			return Key{public: p}, nil
		}
	}
	if private, err := x509.ParsePKCS8PrivateKey(raw); err == nil {
		if p, ok := private.(*ecdsa.PrivateKey); ok && p.Curve == elliptic.P256() {
			return Key{private: p, public: &p.PublicKey}, nil
		}
	}
	return Key{}, fmt.Errorf("%w: is not a P-256 public key", ErrSecret)
}

// Headers is Scheme's.
func (s ECDSA) Headers() []string { return []string{s.Header} }

// Verify is Scheme's.
func (s ECDSA) Verify(_ context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	text, err := one(r.Header, s.Header)
	if err != nil {
		return Verified{}, err
	}
	got, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(got) > 80 {
		return Verified{}, refuse(Malformed, s.Header+" is not the base64 of a P-256 signature")
	}
	return verifyTimed(&r, s.TimeHeader, keys, now, s.Tolerance, func(k Key, message []byte) bool {
		public, ok := k.public.(*ecdsa.PublicKey)
		sum := sha256.Sum256(message)
		return ok && ecdsa.VerifyASN1(public, sum[:], got)
	})
}

// Sign is SigningScheme's.
func (s ECDSA) Sign(r *Request, _ string, keys []Key, now time.Time) error {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	sum := sha256.Sum256(append([]byte(timestamp), r.Body...))
	sig, err := signWith(keys, sum[:], crypto.SHA256)
	if err != nil {
		return err
	}
	setAll(r.Header, s.TimeHeader, timestamp, s.Header, base64.StdEncoding.EncodeToString(sig))
	return nil
}

// NewKey is SigningScheme's: the secret is the private key, in PKCS #8.
func (s ECDSA) NewKey() (string, Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", Key{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", Key{}, err
	}
	return base64.StdEncoding.EncodeToString(raw), Key{private: private, public: &private.PublicKey}, nil
}
