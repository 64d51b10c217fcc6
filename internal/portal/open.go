package portal

import (
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
)

// opening is what the page before a session shows.
type opening struct {
	outbox.Session
	May []string // in words
}

// showLink is the page of a link. Looking at it uses nothing up: mail scanners and previews do.
func (c *customer) showLink(v *Visit) error {
	s, outcome, err := c.sessions.Peek(v.Request, v.PathValue("code"))
	if err != nil {
		return storeAway(err)
	}
	if outcome != session.Opened {
		return linkTrouble(outcome, &s)
	}
	v.Frame.Accent = s.Theme["accent"]
	may := []string{"look"}
	for permission, word := range map[outbox.Permission]string{
		outbox.PermissionReplay: "replay", outbox.PermissionManage: "change endpoints", outbox.PermissionSecrets: "rotate secrets",
	} {
		if s.May(permission) {
			may = append(may, word)
		}
	}
	return v.Show(Page{Name: "open", Title: "Open the webhooks of " + s.TenantKey, Data: opening{s, sorted(may)}})
}

// sorted puts what a link allows into the order of its weight.
func sorted(may []string) []string {
	var out []string
	for _, word := range []string{"look", "replay", "change endpoints", "rotate secrets"} {
		for _, m := range may {
			if m == word {
				out = append(out, m)
			}
		}
	}
	return out
}

// useLink exchanges the link's code for a session. The browser goes on to an address that holds
// nothing worth stealing.
func (c *customer) useLink(v *Visit) error {
	p, outcome, err := c.sessions.Exchange(v.w, v.Request, v.PathValue("code"))
	if err != nil {
		return storeAway(err)
	}
	if outcome != session.Opened {
		return linkTrouble(outcome, &p.Session)
	}
	return v.Redirect(c.sessions.Home(&p), "")
}

func linkTrouble(outcome session.Outcome, s *outbox.Session) error {
	t := &Trouble{Status: http.StatusGone, Alone: true, Title: "This link has been used",
		Text: "It was opened in another browser. A link works once. Get a new one where you got this one."}
	switch outcome {
	case session.Expired:
		t.Title, t.Text = "This link has expired", "Links are good for a few minutes only, so that one found later is worth nothing. Get a new one where you got this one."
	case session.Revoked:
		t.Title, t.Text = "This link was taken back", "Whoever made it has revoked it. Ask them for a new one if you still need to get in."
	case session.Unknown:
		t.Status, t.Title, t.Text = http.StatusNotFound, "This is not a link of ours", "It may have been cut when it was copied. Open it whole, or get a new one."
	}
	if s.ReturnURL != "" {
		t.Next = &Link{s.ReturnURL, "Back to where it came from"}
	}
	return t
}
