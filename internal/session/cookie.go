package session

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// base is the address that the cookie of a tenant's portal, or of the dashboard, is for.
func (m *Manager) base(tenant string) *url.URL {
	if tenant == "" {
		return m.cfg.Dashboard()
	}
	return m.cfg.Portal()
}

// cookieName differs from tenant to tenant: somebody who has the portals of two open in one
// browser must never act in the one as a customer of the other. The __Host- prefix keeps a
// neighbouring subdomain from planting a cookie of that name; it allows no path, so below one it
// is __Secure-. Both exist with https only.
func (m *Manager) cookieName(tenant string) string {
	name := "waybill_operator"
	if tenant != "" {
		sum := sha256.Sum256([]byte(tenant))
		name = "waybill_portal_" + hex.EncodeToString(sum[:6])
	}
	switch base := m.base(tenant); {
	case base.Scheme != "https":
		return name
	case base.Path == "":
		return "__Host-" + name
	}
	return "__Secure-" + name
}

// cookie makes the session's cookie; a negative life removes it.
//
// Within a frame of another site a browser keeps a cookie only if it is SameSite=None, hence
// Secure, and, since third-party cookies are blocked, Partitioned: then it is valid in frames on
// that site alone. Everywhere else Lax keeps other sites' forms from carrying it.
func (m *Manager) cookie(r *http.Request, s *outbox.Session, token string, life time.Duration) *http.Cookie {
	base := m.base(s.TenantKey)
	c := &http.Cookie{
		Name:     m.cookieName(s.TenantKey),
		Value:    token,
		Path:     base.Path + "/",
		MaxAge:   int(life.Seconds()),
		HttpOnly: true,
		Secure:   base.Scheme == "https",
		SameSite: http.SameSiteLaxMode,
	}
	if life < 0 {
		c.MaxAge = -1
	}
	if c.Secure && s.TenantKey != "" && len(m.cfg.FrameAncestors) > 0 && framed(r) {
		c.SameSite, c.Partitioned = http.SameSiteNoneMode, true
	}
	return c
}

// framed reports whether a browser asks for what it will show in a frame.
func framed(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "iframe" || dest == "frame"
}
