package portal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// certificate makes one for a client, and its key, in PEM.
func certificate(t *testing.T) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "waybill of acme"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// customerAt lets a customer of acme in.
func (s *site) customerAt(tenant string) {
	s.t.Helper()
	link, err := url.Parse(s.call("POST", "/v1/tenants/"+tenant+"/portal-sessions", `{}`)["url"].(string))
	if err != nil {
		s.t.Fatal(err)
	}
	s.visit("POST", link.Path, url.Values{})
}

func (s *site) endpointOf(tenant, id string) outbox.Endpoint {
	s.t.Helper()
	owner, err := s.store.Tenant(s.t.Context(), tenant)
	if err != nil {
		s.t.Fatal(err)
	}
	ep, err := outbox.ParseEndpointID(id)
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := s.store.Endpoint(s.t.Context(), owner.TenantRef, outbox.EndpointRef{ID: ep})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func TestEndpointForm_credentialsAreSentAndNeverShown(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.customerAt("acme")
	const home = "/portal/acme/endpoints"
	chain, key := certificate(t)
	form := func(more url.Values) url.Values {
		all := url.Values{"url": {"http://127.0.0.1:1999/in"}, "event_types": {"*"}, "timeout_seconds": {"10"}, "ordering": {"none"}}
		for name, values := range more {
			all[name] = values
		}
		return all
	}
	resp, page := s.visit("POST", home, form(url.Values{
		"auth_user": {"sam"}, "auth_password": {"CANARY:pass"}, "secret_headers": {"x-api-key: CANARY-key"}, "certificate": {chain}, "private_key": {key}, "state": {"draft"},
	}))
	if resp.StatusCode != http.StatusOK || strings.Contains(page, "CANARY") || strings.Contains(page, "BEGIN PRIVATE") {
		t.Fatalf("%d %s", resp.StatusCode, page)
	}
	id := page[strings.Index(page, "endpoints/ep_")+len("endpoints/"):][:len("ep_")+26]
	e := s.endpointOf("acme", id)
	if want := "Basic " + base64.StdEncoding.EncodeToString([]byte("sam:CANARY:pass")); e.Credentials.Headers["Authorization"] != want || e.Credentials.Headers["X-Api-Key"] != "CANARY-key" {
		t.Errorf("secret headers %v", e.Credentials.Headers)
	}
	if e.State != outbox.EndpointDraft || e.Credentials.Certificate == "" || e.Credentials.Key == "" {
		t.Errorf("state %s, a certificate of %d bytes", e.State, len(e.Credentials.Certificate))
	}
	for _, at := range []string{home, home + "/" + id, home + "/" + id + "/edit"} {
		page := s.page(at)
		if strings.Contains(page, "CANARY") || strings.Contains(page, "BEGIN ") && !strings.Contains(page, "placeholder=\"-----BEGIN") {
			t.Errorf("%s shows a credential", at)
		}
	}
	if page := s.page(home + "/" + id); !strings.Contains(page, "waybill of acme") || !strings.Contains(page, "X-Api-Key") || !strings.Contains(page, "Start sending") {
		t.Error("the page does not say what there is")
	}

	edit := home + "/" + id + "/edit"
	saved := func(what string, more url.Values) {
		t.Helper()
		if resp, page := s.visit("POST", edit, form(more)); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", what, resp.StatusCode, page)
		}
	}
	// What is not named stays.
	saved("nothing about credentials", url.Values{"description": {"x"}})
	if e := s.endpointOf("acme", id); len(e.Credentials.Headers) != 2 || e.Credentials.Certificate == "" {
		t.Errorf("a form without them left %v", e.Credentials)
	}
	saved("a token in its place, a header away", url.Values{"auth_token": {"CANARY-token"}, "remove_secret": {"X-Api-Key"}, "remove_certificate": {"1"}})
	if e := s.endpointOf("acme", id); len(e.Credentials.Headers) != 1 || e.Credentials.Headers["Authorization"] != "Bearer CANARY-token" || e.Credentials.Certificate != "" || e.Credentials.Key != "" {
		t.Errorf("after it %v", e.Credentials)
	}

	// Another server does not get them; forgetting them, or typing them again, is the way.
	elsewhere := url.Values{"url": {"http://127.0.0.1:2000/in"}, "auth_user": {""}}
	resp, page = s.visit("POST", edit, form(elsewhere))
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f-secret_headers"`) || strings.Contains(page, "CANARY") || strings.Contains(page, "drop_secret_headers:") || !strings.Contains(page, "forget them all.") {
		t.Errorf("another server: %d", resp.StatusCode)
	}
	for _, typed := range []string{"http://joe:CANARY@127.0.0.1:1999/in", "http://joe:CAN/CANARY@127.0.0.1:1999/in", "joe:CANARY@127.0.0.1/in", "http://CANARY%zz@127.0.0.1:1999/in"} {
		for _, at := range []string{home, edit} {
			resp, page := s.visit("POST", at, form(url.Values{"url": {typed}}))
			if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f-url"`) || strings.Contains(page, "CANARY") {
				t.Errorf("%s at %s: %d, or no fault, or it is given back", typed, at, resp.StatusCode)
			}
		}
	}
	for typed, want := range map[string]string{
		"https://a.example:8443/@user?x=a@b": "https://a.example:8443/@user?x=a@b",
		"https://[2001:db8::1]/@user":        "https://[2001:db8::1]/@user",
		"https://joe@a.example/in":           "https://a.example/in",
		"":                                   "",
	} {
		if got := withoutUser(typed); got != want {
			t.Errorf("%q without a user is %q, want %q", typed, got, want)
		}
	}
	elsewhere.Set("drop_secret_headers", "1")
	saved("forgotten", elsewhere)
	if e := s.endpointOf("acme", id); len(e.Credentials.Headers) != 0 || e.URL != "http://127.0.0.1:2000/in" {
		t.Errorf("after it %v at %s", e.Credentials.Headers, e.URL)
	}

	for name, row := range map[string]struct {
		more  url.Values
		field string
	}{
		"both kinds":            {url.Values{"auth_user": {"CANARY"}, "auth_token": {"CANARY"}}, "secret_headers"},
		"a token and a line":    {url.Values{"auth_token": {"CANARY"}, "secret_headers": {"authorization: CANARY"}}, "secret_headers"},
		"a password and a line": {url.Values{"auth_user": {"sam"}, "auth_password": {"CANARY"}, "secret_headers": {"Authorization: CANARY"}}, "secret_headers"},
		"a colon":               {url.Values{"auth_user": {"CANARY:x"}}, "secret_headers"},
		"no header":             {url.Values{"secret_headers": {"CANARY"}}, "secret_headers"},
		"a header of ours":      {url.Values{"secret_headers": {"Webhook-Id: CANARY"}}, "secret_headers"},
		"no certificate":        {url.Values{"certificate": {"CANARY"}, "private_key": {"CANARY"}}, "client_certificate"},
		"the key is missing":    {url.Values{"certificate": {chain}}, "client_certificate"},
	} {
		for _, at := range []string{home, edit} {
			resp, page := s.visit("POST", at, form(row.more))
			if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f-`+row.field+`"`) || strings.Contains(page, "CANARY") || !strings.Contains(page, "Type it again") {
				t.Errorf("%s at %s: %d, or no fault at %s, or it is given back", name, at, resp.StatusCode, row.field)
			}
		}
	}
}
