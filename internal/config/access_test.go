package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoad_publicURL(t *testing.T) {
	for given, want := range map[string]string{
		"https://hooks.example.com":        "https://hooks.example.com",
		"https://hooks.example.com/":       "https://hooks.example.com",
		"http://127.0.0.1:8420":            "http://127.0.0.1:8420",
		"https://example.com/webhooks/v2/": "https://example.com/webhooks/v2",
		"https://[2001:db8::1]:8443":       "https://[2001:db8::1]:8443",
		"hooks.example.com":                "",
		"ftp://hooks.example.com":          "",
		"https://":                         "",
		"https:///x":                       "",
		"https://u:hunter2@example.com":    "",
		"https://example.com/?a=1":         "",
		"https://example.com/#a":           "",
		"https://example.com/a/../b":       "",
		"https://example.com/a//b":         "",
		"javascript:alert(1)":              "",
	} {
		c, err := Load(Sources{Environ: []string{"WAYBILL_PUBLIC_URL=" + given}})
		switch {
		case want == "" && err == nil:
			t.Errorf("%s was taken as %s", given, c.PublicURL)
		case want == "" && (!strings.Contains(err.Error(), "WAYBILL_PUBLIC_URL: must be an address") || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v", given, err)
		case want != "" && err != nil:
			t.Errorf("%s: %v", given, err)
		case want != "" && c.PublicURL.String() != want:
			t.Errorf("%s: %s, want %s", given, c.PublicURL, want)
		}
	}
}

func TestLoad_frameAncestors(t *testing.T) {
	c, err := Load(Sources{Environ: []string{"WAYBILL_PORTAL_FRAME_ANCESTORS=https://app.example.com, https://*.example.com:8443 'self'"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"https://app.example.com", "https://*.example.com:8443", "'self'"}, c.FrameAncestors); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"app.example.com", "*", "https://a.example.com; script-src *", "'none'", "https://a/b", "https://*"} {
		if _, err := Load(Sources{Environ: []string{"WAYBILL_PORTAL_FRAME_ANCESTORS=" + bad}}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
