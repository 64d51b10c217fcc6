package attempt_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// asPEM writes a certificate and its key as an operator pastes them.
func asPEM(t *testing.T, chain tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(chain.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func TestSender_showsItsClientCertificateToWhoeverAsks(t *testing.T) {
	root, _ := issue(t, nil, isCA("a root"))
	_, serving := issue(t, &root, func(*x509.Certificate) {})
	forClients := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	_, trusted := issue(t, &root, forClients)
	stranger, _ := issue(t, nil, isCA("a stranger"))
	_, unknown := issue(t, &stranger, forClients)
	roots := pool(root.cert)
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			receiver := secure(t, &tls.Config{
				Certificates: []tls.Certificate{serving}, MinVersion: version, MaxVersion: version,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
			})
			b := newBench(t, egress.Config{RootCAs: roots, Resolver: names(t, map[string]string{"hooks.example.com": "127.0.0.1"}, nil)})
			as := func(chain tls.Certificate) func(*attempt.Endpoint) {
				certificate, key := asPEM(t, chain)
				return func(e *attempt.Endpoint) { e.Credentials = outbox.Credentials{Certificate: certificate, Key: key} }
			}
			url := "https://hooks.example.com:" + receiver.port() + "/"
			expect(t, b.send(t, url, as(trusted)), delivered)
			refused := verdict{outbox.OutcomePermanent, outbox.KindTLSClientCertificate, 0}
			out := b.send(t, url, as(unknown))
			expect(t, out, refused)
			if !strings.Contains(out.Message, "does not accept") || !strings.Contains(out.Message, "3 May 2031") {
				t.Errorf("of a certificate nobody trusts: %s", out.Message)
			}
			// The connection that was made with a certificate is not used without one.
			out = b.send(t, url)
			expect(t, out, refused)
			if !strings.Contains(out.Message, "does not have") {
				t.Errorf("without a certificate: %s", out.Message)
			}
			if n := len(receiver.received()); n != 1 {
				t.Errorf("%d requests arrived, want that of the trusted one", n)
			}
		})
	}
}

func TestClientCertificate_saysWhichHalfIsWrong(t *testing.T) {
	root, _ := issue(t, nil, isCA("a root"))
	_, one := issue(t, &root, func(*x509.Certificate) {})
	_, two := issue(t, &root, func(*x509.Certificate) {})
	certificate, key := asPEM(t, one)
	_, otherKey := asPEM(t, two)
	if pair, err := attempt.ClientCertificate(certificate, key); err != nil || pair.Leaf == nil {
		t.Errorf("a good pair: %v", err)
	}
	for what, row := range map[string]struct {
		certificate, key string
		want             error
	}{
		"nothing":                {"", "", attempt.ErrCertificate},
		"no PEM":                 {"x", key, attempt.ErrCertificate},
		"the key in both places": {key, key, attempt.ErrCertificate},
		"no key":                 {certificate, "", attempt.ErrCertificateKey},
		"another's key":          {certificate, otherKey, attempt.ErrCertificateKey},
	} {
		if _, err := attempt.ClientCertificate(row.certificate, row.key); err != row.want {
			t.Errorf("%s: %v, want %v", what, err, row.want)
		}
	}
}

// answering takes every request.
func answering(s *sink, conn net.Conn) {
	for r := bufio.NewReader(conn); s.receive(r); {
		io.WriteString(conn, reply(200, "", "ok"))
	}
}

func TestSender_secretHeadersAreSentAndRecordedNowhere(t *testing.T) {
	s := newSink(t, answering)
	b := newBench(t, egress.Config{})
	out := b.send(t, "http://127.0.0.1:"+s.port()+"/", func(e *attempt.Endpoint) {
		e.Credentials = outbox.Credentials{Headers: map[string]string{"authorization": "Bearer CANARY", "X-Plain-Name": "CANARY2"}}
		e.Headers = map[string]string{"X-Visible": "yes"}
	})
	expect(t, out, delivered)
	request := s.received()[0]
	for _, line := range []string{"Authorization: Bearer CANARY\r\n", "X-Plain-Name: CANARY2\r\n", "X-Visible: yes\r\n"} {
		if strings.Count(request, line) != 1 {
			t.Errorf("the request does not have %q once:\n%s", line, request)
		}
	}
	recorded := map[string]string{}
	for _, h := range out.RequestHeaders {
		recorded[h.Name] = h.Value
	}
	if recorded["authorization"] != "[secret]" || recorded["x-plain-name"] != "[secret]" || recorded["x-visible"] != "yes" {
		t.Errorf("recorded %v", recorded)
	}
}

func TestSender_severalSchemesSignOneRequest(t *testing.T) {
	s := newSink(t, answering)
	b := newBench(t, egress.Config{})
	named, _ := signing.NewBook(nil).Named([]string{"github", "stripe"})
	sign := func(e *attempt.Endpoint) {
		e.Schemes = named
		e.Secrets = []outbox.Secret{{Scheme: "github", Value: "one"}, {Scheme: "stripe", Value: "whsec_twelve_chars"}}
	}
	out := b.send(t, "http://127.0.0.1:"+s.port()+"/", sign)
	expect(t, out, delivered)
	request := s.received()[0]
	for _, name := range []string{"X-Hub-Signature-256: sha256=", "X-GitHub-Event: payment.succeeded", "Stripe-Signature: t=", "webhook-id: ", "webhook-timestamp: "} {
		if strings.Count(request, name) != 1 {
			t.Errorf("the request does not have %q once:\n%s", name, request)
		}
	}
	if strings.Contains(request, "webhook-signature") {
		t.Error("signed by a scheme that is not in use")
	}
	for what, change := range map[string]func(*attempt.Endpoint){
		"a scheme that is not defined": func(e *attempt.Endpoint) { sign(e); e.UnknownScheme = "gone" },
		"a scheme without a secret":    func(e *attempt.Endpoint) { sign(e); e.Secrets = e.Secrets[:1] },
		"a secret that cannot be read": func(e *attempt.Endpoint) { sign(e); e.Secrets[1].Value = "short" },
		"a certificate without a key":  func(e *attempt.Endpoint) { e.Credentials.Certificate = "x" },
	} {
		out := b.send(t, "http://127.0.0.1:"+s.port()+"/", change)
		expect(t, out, verdict{outbox.OutcomePermanent, outbox.KindConfig, 0})
		if len(s.received()) != 1 {
			t.Fatalf("%s: a request was sent", what)
		}
	}
}

// Looking at an address sends nothing.
func TestSender_tryConnectsAndHangsUp(t *testing.T) {
	root, _ := issue(t, nil, isCA("a root"))
	_, good := issue(t, &root, func(*x509.Certificate) {})
	_, expired := issue(t, &root, func(c *x509.Certificate) {
		c.NotAfter = time.Date(2025, 11, 3, 0, 0, 0, 0, time.UTC)
		c.NotBefore = c.NotAfter.AddDate(-1, 0, 0)
	})
	serve := func(chain tls.Certificate) *sink {
		return secure(t, &tls.Config{Certificates: []tls.Certificate{chain}})
	}
	fine, late := serve(good), serve(expired)
	plain := newSink(t, func(_ *sink, conn net.Conn) { io.Copy(io.Discard, conn) })
	b := newBench(t, egress.Config{RootCAs: pool(root.cert), Resolver: names(t, map[string]string{"hooks.example.com": "127.0.0.1", "inside.example.com": "10.0.0.1"}, nil)})
	for what, row := range map[string]struct {
		url  string
		kind outbox.Kind
	}{
		"in order":           {"https://hooks.example.com:" + fine.port() + "/", ""},
		"plain":              {"http://hooks.example.com:" + plain.port() + "/", ""},
		"expired":            {"https://hooks.example.com:" + late.port() + "/", outbox.KindTLSCertificate},
		"an address inside":  {"https://inside.example.com/", outbox.KindEgressDenied},
		"no such name":       {"https://nobody.example.com/", outbox.KindDNSNotFound},
		"a port for no web":  {"https://hooks.example.com:5432/", outbox.KindEgressDenied},
		"not a URL any more": {"https://", outbox.KindConfig},
	} {
		tried := b.Try(b.Prepare(attempt.Endpoint{URL: row.url, Secrets: []outbox.Secret{{Value: testSecret}}}))
		if tried.Kind != row.kind || (tried.Message == "") != (row.kind == "") {
			t.Errorf("%s: %q, %s", what, tried.Kind, tried.Message)
		}
		if what == "in order" && !tried.CertificateUntil.Equal(time.Date(2031, 5, 3, 12, 0, 0, 0, time.UTC)) {
			t.Errorf("certificate until %v", tried.CertificateUntil)
		}
	}
	for _, s := range []*sink{fine, late, plain} {
		if n := len(s.received()); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	}
}
