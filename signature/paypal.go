package signature

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// PayPalRSA checks PayPal's RSA signature over "id|time|webhook id|CRC-32 of the body". The key is
// the webhook's id, which is no secret; what vouches is the certificate, which the request names.
// It is fetched from https://*.paypal.com/v1/notifications/certs/ and from nowhere else, redirects
// included, and kept while it is valid.
//
// A CRC is easily made to fit: PayPal's signature says that PayPal sent something, and little of what.
type PayPalRSA struct {
	// Client fetches certificates. Required.
	Client *http.Client
	// Tolerance is how old a transmission may be. Default 4 days, because PayPal tries for three and
	// does not say whether each attempt has a time of its own. It may be 5 minutes ahead.
	Tolerance time.Duration

	mu    sync.Mutex // held while fetching: a flood of strange names asks PayPal one at a time
	certs map[string]*x509.Certificate
}

const (
	paypalID   = "Paypal-Transmission-Id"
	paypalTime = "Paypal-Transmission-Time"
	paypalSig  = "Paypal-Transmission-Sig"
	paypalCert = "Paypal-Cert-Url"
	paypalAlgo = "Paypal-Auth-Algo"

	maxCertBytes = 64 << 10
	maxCerts     = 16
)

var (
	paypalHost = regexp.MustCompile(`^([a-z0-9-]+\.)+paypal\.com$`)
	paypalPath = regexp.MustCompile(`^/v1/notifications/certs/[A-Za-z0-9_-]{1,128}$`)
)

// Key is Scheme's: the webhook's id, as PayPal's page shows it.
func (*PayPalRSA) Key(secret string) (Key, error) {
	return Key{raw: []byte(secret)}, verbatim(secret)
}

// Headers is Scheme's.
func (*PayPalRSA) Headers() []string { return []string{paypalSig} }

// Verify is Scheme's. An error that is no *Error means that the certificate could not be had: try
// again.
func (s *PayPalRSA) Verify(ctx context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	var h [5]string
	for i, name := range [...]string{paypalID, paypalTime, paypalSig, paypalCert, paypalAlgo} {
		text, err := one(r.Header, name)
		if err != nil {
			return Verified{}, err
		}
		h[i] = text
	}
	id, stamp, algo := h[0], h[1], h[4]
	if err := checkID(id, paypalID); err != nil {
		return Verified{}, err
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(h[2])
	if err != nil {
		return Verified{}, refuse(Malformed, paypalSig+" is not base64")
	}
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return Verified{}, refuse(Malformed, paypalTime+" is not a time as RFC 3339 writes it")
	}
	if algo != "SHA256withRSA" {
		return Verified{}, refuse(Malformed, paypalAlgo+" is not SHA256withRSA")
	}
	cert, err := s.certificate(ctx, h[3], now)
	if err != nil {
		return Verified{}, err
	}
	sum := strconv.FormatUint(uint64(crc32.ChecksumIEEE(r.Body)), 10)
	key := -1
	for i, k := range keys {
		digest := sha256.Sum256([]byte(id + "|" + stamp + "|" + string(k.raw) + "|" + sum))
		if len(k.raw) > 0 && rsa.VerifyPKCS1v15(cert.PublicKey.(*rsa.PublicKey), crypto.SHA256, digest[:], sig) == nil && key < 0 {
			key = i
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, "the signature was not made by PayPal for a webhook of this source over this id, time and these bytes")
	}
	past := s.Tolerance
	if past == 0 {
		past = 4 * 24 * time.Hour
	}
	if at, err = within(at, now, past, DefaultTolerance); err != nil {
		return Verified{}, err
	}
	return Verified{At: at, Key: key}, nil
}

// certificate is the one at address, fetched unless it is known.
func (s *PayPalRSA) certificate(ctx context.Context, address string, now time.Time) (*x509.Certificate, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !paypalHost.MatchString(u.Host) || !paypalPath.MatchString(u.EscapedPath()) {
		return nil, refuse(Malformed, paypalCert+" is not the address of a certificate at PayPal")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cert := s.certs[address]; cert != nil {
		return cert, valid(cert, now)
	}
	if s.Client == nil {
		return nil, errors.New("signature: PayPalRSA has no Client to fetch certificates with")
	}
	raw, err := s.fetch(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("signature: PayPal's certificate: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("signature: PayPal's certificate is not in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("signature: PayPal's certificate: %w", err)
	}
	if key, ok := cert.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() < 2048 {
		return nil, errors.New("signature: PayPal's certificate has no RSA key of at least 2048 bits")
	}
	if s.certs == nil || len(s.certs) >= maxCerts {
		s.certs = map[string]*x509.Certificate{}
	}
	s.certs[address] = cert
	return cert, valid(cert, now)
}

func valid(cert *x509.Certificate, now time.Time) error {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return refuse(Mismatch, "the certificate is not valid now")
	}
	return nil
}

func (s *PayPalRSA) fetch(ctx context.Context, u *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	client := *s.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("it answered with a redirect, which is not followed")
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxCertBytes+1))
	if err == nil && len(raw) > maxCertBytes {
		err = fmt.Errorf("longer than %d bytes", maxCertBytes)
	}
	return raw, err
}
