package signature_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// certServer answers for PayPal's certificate, and counts.
type certServer struct {
	pem    []byte
	status int
	asked  []string
}

func (c *certServer) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked = append(c.asked, r.URL.String())
	if c.status == 0 {
		return nil, errors.New("no route to host")
	}
	header := http.Header{"Location": {"https://evil.example.com/cert"}}
	return &http.Response{StatusCode: c.status, Header: header, Body: io.NopCloser(bytes.NewReader(c.pem)), Request: r}, nil
}

const (
	paypalWebhook = "0EH40505U7160970P"
	paypalCertURL = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77"
)

// paypalKey is made once: it takes longer than all the rest.
var paypalKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// newPayPal is a scheme with a certificate server, and a request signed with the certificate's key.
func newPayPal(t *testing.T, now time.Time) (*signature.PayPalRSA, *certServer, signature.Request) {
	t.Helper()
	private, err := paypalKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "messageverificationcerts.paypal.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	server := &certServer{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), status: http.StatusOK}
	body := `{"id":"WH-1","event_type":"PAYMENT.SALE.COMPLETED"}`
	stamp := now.UTC().Format(time.RFC3339)
	message := fmt.Sprintf("tx-1|%s|%s|%d", stamp, paypalWebhook, crc32.ChecksumIEEE([]byte(body)))
	digest := sha256.Sum256([]byte(message))
	sig, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	r := request(map[string]string{
		"PAYPAL-TRANSMISSION-ID": "tx-1", "PAYPAL-TRANSMISSION-TIME": stamp, "PAYPAL-AUTH-ALGO": "SHA256withRSA",
		"PAYPAL-CERT-URL": paypalCertURL, "PAYPAL-TRANSMISSION-SIG": base64.StdEncoding.EncodeToString(sig),
	}, "", body)
	return signature.PayPal(&http.Client{Transport: server}), server, r
}

func TestPayPal_verifiesAndKeepsTheCertificate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s, server, r := newPayPal(t, now)
	k := key(t, s, paypalWebhook)
	for range 3 {
		if v, err := verify(t, s, r, now, k); err != nil || !v.At.Equal(now) {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if len(server.asked) != 1 || server.asked[0] != paypalCertURL {
		t.Errorf("asked for %v", server.asked)
	}
	if _, err := verify(t, s, r, now, key(t, s, "0EH40505U7160970X")); reasonOf(err) != signature.Mismatch {
		t.Errorf("another webhook: %v", err)
	}
	other := r
	other.Body = []byte(`{"id":"WH-2"}`)
	if _, err := verify(t, s, other, now, k); reasonOf(err) != signature.Mismatch {
		t.Errorf("another body: %v", err)
	}
	if _, err := verify(t, s, r, now.Add(2*time.Hour), k); reasonOf(err) != signature.Mismatch {
		t.Errorf("after the certificate's end: %v", err)
	}
	if _, err := verify(t, s, r, now.Add(-30*time.Minute), k); reasonOf(err) != signature.TooNew {
		t.Errorf("from the future: %v", err)
	}
}

func TestPayPal_asksNobodyElseForACertificate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, address := range []string{
		"http://api.paypal.com/v1/notifications/certs/CERT-1",
		"https://evil.example.com/v1/notifications/certs/CERT-1",
		"https://api.paypal.com.evil.example.com/v1/notifications/certs/CERT-1",
		"https://evilpaypal.com/v1/notifications/certs/CERT-1",
		"https://paypal.com@evil.example.com/v1/notifications/certs/CERT-1",
		"https://api.paypal.com:8443/v1/notifications/certs/CERT-1",
		"https://api.paypal.com/v1/notifications/certs/../../uploads/mine",
		"https://api.paypal.com/v1/notifications/certs/%2e%2e/mine",
		"https://api.paypal.com/v1/notifications/certs/CERT-1?x=1",
		"https://127.0.0.1/v1/notifications/certs/CERT-1",
		"file:///etc/passwd",
	} {
		s, server, r := newPayPal(t, now)
		r.Header.Set("Paypal-Cert-Url", address)
		if _, err := verify(t, s, r, now, key(t, s, paypalWebhook)); reasonOf(err) != signature.Malformed {
			t.Errorf("%s: %v", address, err)
		}
		if len(server.asked) != 0 {
			t.Errorf("%s was asked for", server.asked)
		}
	}
}

// Without a certificate nothing is known of the request: that is no refusal, the provider should come
// again.
func TestPayPal_aCertificateThatCannotBeHadIsNoRefusal(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, status := range []int{0, http.StatusFound, http.StatusNotFound, http.StatusInternalServerError} {
		s, server, r := newPayPal(t, now)
		server.status = status
		_, err := s.Verify(context.Background(), r, []signature.Key{key(t, s, paypalWebhook)}, now)
		if _, refused := signature.Why(err); err == nil || refused {
			t.Errorf("status %d: %v", status, err)
		}
		if len(server.asked) != 1 {
			t.Errorf("status %d: asked for %v", status, server.asked)
		}
	}
}
