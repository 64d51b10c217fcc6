package portal

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strings"
	"time"
	_ "time/tzdata" // the reader's zone is known wherever the server runs
	"unicode/utf8"
)

// Cookies of ours. None but the session's is worth anything to a thief.
const (
	cookieTheme = "waybill_theme"
	cookieZone  = "waybill_zone"
	cookieFlash = "waybill_flash"
)

// prefs is how somebody wants to see the pages.
type prefs struct {
	theme string         // light, dark; "" follows the system
	zone  *time.Location // nil: UTC
}

func prefsOf(r *http.Request) prefs {
	var p prefs
	if c, err := r.Cookie(cookieTheme); err == nil && (c.Value == "light" || c.Value == "dark") {
		p.theme = c.Value
	}
	if c, err := r.Cookie(cookieZone); err == nil {
		p.zone = zoneOf(c.Value)
	}
	return p
}

// zoneOf finds a time zone by its name; nil for UTC and for what is none. "Local" would be the
// server's.
func zoneOf(name string) *time.Location {
	if name == "" || name == "UTC" || name == "Local" || len(name) > 64 {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

const aYear = 365 * 24 * 60 * 60

// setCookie sets a cookie for all our pages, for so many seconds (negative: it is removed).
func (v *Visit) setCookie(name, value string, seconds int) {
	http.SetCookie(v.w, v.base.cookie(name, value, seconds))
}

// cookie makes one that goes where our pages go. In a frame of another site only a cookie that
// is SameSite=None is sent, which browsers take over TLS alone; Partitioned keeps it to that site.
func (b *Base) cookie(name, value string, seconds int) *http.Cookie {
	c := &http.Cookie{
		Name: name, Value: value, Path: b.root + "/", MaxAge: seconds,
		HttpOnly: true, Secure: b.secure, SameSite: http.SameSiteLaxMode,
	}
	if b.secure && len(b.cfg.FrameAncestors) > 0 {
		c.SameSite, c.Partitioned = http.SameSiteNoneMode, true
	}
	return c
}

// maxFlash keeps a sentence well within what a cookie may hold.
const maxFlash = 1000

func encodeFlash(say string) string {
	for len(say) > maxFlash {
		_, n := utf8.DecodeLastRuneInString(say)
		say = say[:len(say)-n]
	}
	return base64.RawURLEncoding.EncodeToString([]byte(say))
}

// flash takes what the act before this page has to say.
func (v *Visit) flash() string {
	c, err := v.Cookie(cookieFlash)
	if err != nil || c.Value == "" {
		return ""
	}
	v.setCookie(cookieFlash, "", -1)
	say, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || !utf8.Valid(say) {
		return ""
	}
	return string(say)
}

// SetPreferences is the act behind the theme and time zone buttons of every page: theme=auto,
// light or dark; tz=utc, or tz=local with zone, which script fills in. Without script there is a
// page to choose it on.
func (b *Base) SetPreferences(v *Visit) error {
	switch theme := v.PostFormValue("theme"); theme {
	case "light", "dark":
		v.setCookie(cookieTheme, theme, aYear)
	case "auto":
		v.setCookie(cookieTheme, "", -1)
	}
	switch v.PostFormValue("tz") {
	case "utc":
		v.setCookie(cookieZone, "", -1)
	case "local":
		name := v.PostFormValue("zone")
		switch {
		case name == "UTC":
			v.setCookie(cookieZone, "", -1)
			return v.Redirect(v.back(), "")
		case zoneOf(name) == nil:
			return v.Redirect(v.Frame.Prefs+"?back="+escapeQuery(v.back()), "")
		}
		v.setCookie(cookieZone, name, aYear)
	}
	return v.Redirect(v.back(), "")
}

// ShowPreferences is the page that sets the zone without script.
func (b *Base) ShowPreferences(v *Visit) error {
	type zone struct {
		Name    string
		Current bool
	}
	var zones []zone
	for _, name := range commonZones {
		zones = append(zones, zone{name, v.prefs.zone != nil && v.prefs.zone.String() == name || v.prefs.zone == nil && name == "UTC"})
	}
	return v.Show(Page{Name: "preferences", Title: "Preferences", Data: map[string]any{"Zones": zones, "Back": v.back()}})
}

// back is the page of ours that the form or the link came from. Anything that is not a path of
// this server leads home.
func (v *Visit) back() string {
	back := v.FormValue("back")
	if !strings.HasPrefix(back, "/") || strings.HasPrefix(back, "//") || strings.ContainsAny(back, "\\\r\n\t") {
		return cmp.Or(v.Frame.Home, v.base.root+"/")
	}
	return back
}

// commonZones are those offered where no script tells the browser's own.
var commonZones = []string{
	"UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "Africa/Nairobi", "America/Anchorage", "America/Argentina/Buenos_Aires",
	"America/Bogota", "America/Chicago", "America/Denver", "America/Halifax", "America/Lima", "America/Los_Angeles", "America/Mexico_City",
	"America/New_York", "America/Phoenix", "America/Santiago", "America/Sao_Paulo", "America/Toronto", "Asia/Bangkok", "Asia/Dhaka",
	"Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta", "Asia/Jerusalem", "Asia/Karachi", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Manila",
	"Asia/Riyadh", "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Tashkent", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores",
	"Australia/Adelaide", "Australia/Brisbane", "Australia/Perth", "Australia/Sydney", "Europe/Athens", "Europe/Berlin", "Europe/Istanbul",
	"Europe/Lisbon", "Europe/London", "Europe/Madrid", "Europe/Moscow", "Europe/Paris", "Europe/Rome", "Europe/Warsaw", "Pacific/Auckland",
	"Pacific/Honolulu",
}
