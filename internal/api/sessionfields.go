package api

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// How long links and sessions live.
const (
	portalLife   = time.Hour
	operatorLife = 12 * time.Hour
	linkLife     = 5 * time.Minute
	minLife      = time.Second
	maxLife      = 30 * 24 * time.Hour
)

// askedSession is a session as a request asks for it.
type askedSession struct {
	outbox.Session
	life, linkLife time.Duration
	readOnly       bool
}

func newSession() askedSession { return askedSession{life: portalLife, linkLife: linkLife} }

// allowed are the permissions of a portal session in their usual order: all of them unless some
// were chosen, and looking always.
func (s *askedSession) allowed() []outbox.Permission {
	all := slices.Clone(outbox.PortalPermissions)
	return slices.DeleteFunc(all, func(p outbox.Permission) bool {
		return p != outbox.PermissionView && (s.readOnly || s.Permissions != nil && !s.May(p))
	})
}

// fillSession reads a request that may be without a body.
func (q *request) fillSession(fields []field[askedSession], into *askedSession) error {
	if len(q.body) == 0 {
		return nil
	}
	raw, err := q.object()
	if err != nil {
		return err
	}
	return fillBody(q, raw, fields, into)
}

func lifeField(name, about string, standard time.Duration, of func(*askedSession) *time.Duration) field[askedSession] {
	return field[askedSession]{
		name: name, about: about, schema: rangeSchema(huma.TypeNumber, minLife.Seconds(), maxLife.Seconds(), standard.Seconds()),
		set:   func(s *askedSession, v value) { setSeconds(of(s), v, minLife.Seconds(), maxLife.Seconds()) },
		reset: func(s *askedSession) { *of(s) = standard },
	}
}

var (
	linkLifeField = lifeField("link_expires_in_seconds", "How long the link may wait to be opened; never longer than the session.", linkLife,
		func(s *askedSession) *time.Duration { return &s.linkLife })
	readOnlyField = field[askedSession]{
		name: "read_only", about: "true: the session may look and nothing else.", schema: &huma.Schema{Type: huma.TypeBoolean, Default: false},
		set: func(s *askedSession, v value) {
			if b, ok := v.boolean(); ok {
				s.readOnly = b
			}
		},
		reset: func(s *askedSession) { s.readOnly = false },
	}
	userField = field[askedSession]{
		name: "user", about: "Who it is for: it goes into the record of who did what.", schema: describe("UserInput", userFields),
		set:   func(s *askedSession, v value) { fill(v, userFields, &s.User) },
		reset: func(s *askedSession) { s.User = outbox.SessionUser{} },
	}
	startField = field[askedSession]{
		name: "path", about: "Where to begin, for example /deliveries.", schema: textSchema(maxPath),
		set: func(s *askedSession, v value) {
			if path, ok := v.text(maxPath); ok && validPath(path) {
				s.Path = path
			} else if ok {
				v.invalid("want a path within the portal, such as /deliveries")
			}
		},
		reset: func(s *askedSession) { s.Path = "" },
	}
)

// portalSessionFields is POST …/portal-sessions.
var portalSessionFields = []field[askedSession]{
	lifeField("expires_in_seconds", "How long the session lives, from now.", portalLife,
		func(s *askedSession) *time.Duration { return &s.life }),
	linkLifeField,
	{
		name: "permissions", about: "view is always among them. replay: deliver again and cancel. manage: make, change, test and delete endpoints. secrets: rotate signing secrets.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: wordsSchema("view", "replay", "manage", "secrets"), MaxItems: new(10), Default: outbox.PortalPermissions},
		set: func(s *askedSession, v value) {
			s.Permissions = []outbox.Permission{}
			v.list(10, func(v value) {
				if word, ok := v.oneOf("view", "replay", "manage", "secrets"); ok {
					s.Permissions = append(s.Permissions, outbox.Permission(word))
				}
			})
		},
		reset: func(s *askedSession) { s.Permissions = nil },
	},
	readOnlyField,
	userField,
	startField,
	{
		name: "return_url", about: "Where the portal's way back leads: http or https.", schema: &huma.Schema{Type: huma.TypeString, Format: "uri", MaxLength: new(maxReturnURL)},
		set: func(s *askedSession, v value) {
			if text, ok := v.text(maxReturnURL); ok && validReturnURL(text) {
				s.ReturnURL = text
			} else if ok {
				v.invalid("want an http or https address without a user name")
			}
		},
		reset: func(s *askedSession) { s.ReturnURL = "" },
	},
	{
		name: "theme", about: `light, dark or auto; or an object of {"mode": that, "accent": "#rrggbb"}.`,
		schema: &huma.Schema{AnyOf: []*huma.Schema{wordsSchema("light", "dark", "auto"), describe("ThemeInput", themeFields)}},
		set:    func(s *askedSession, v value) { setTheme(&s.Theme, v) },
		reset:  func(s *askedSession) { s.Theme = nil },
	},
}

// operatorSessionFields is POST /v1/operator-sessions.
var operatorSessionFields = []field[askedSession]{
	lifeField("expires_in_seconds", "How long the session lives, from now.", operatorLife,
		func(s *askedSession) *time.Duration { return &s.life }),
	linkLifeField, readOnlyField, userField, startField,
}

var userFields = []field[outbox.SessionUser]{
	{name: "id", about: "Your own id of the person.", required: true, schema: textSchema(maxName),
		set: func(u *outbox.SessionUser, v value) { setText(&u.ID, v, maxName) }},
	{name: "name", about: "For people.", schema: textSchema(maxName),
		set:   func(u *outbox.SessionUser, v value) { setText(&u.Name, v, maxName) },
		reset: func(u *outbox.SessionUser) { u.Name = "" }},
	{name: "email", about: "For people; nothing is sent there.", schema: textSchema(maxName),
		set:   func(u *outbox.SessionUser, v value) { setText(&u.Email, v, maxName) },
		reset: func(u *outbox.SessionUser) { u.Email = "" }},
}

var themeFields = []field[map[string]string]{
	{name: "mode", about: "auto follows the customer's system.", schema: wordsSchema("light", "dark", "auto"),
		set: func(t *map[string]string, v value) {
			if word, ok := v.oneOf("light", "dark", "auto"); ok {
				(*t)["mode"] = word
			}
		},
		reset: func(t *map[string]string) { delete(*t, "mode") }},
	{name: "accent", about: "The colour of buttons and links.", schema: &huma.Schema{Type: huma.TypeString, Pattern: accent.String()},
		set: func(t *map[string]string, v value) {
			if text, ok := v.text(7); ok && accent.MatchString(text) {
				(*t)["accent"] = text
			} else if ok {
				v.invalid("want a colour such as #0a7f5a")
			}
		},
		reset: func(t *map[string]string) { delete(*t, "accent") }},
}

// accent is the one form of a colour that is taken: what ends up in a style sheet must be nothing
// else.
var accent = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// setTheme reads a theme: a mode alone, or an object.
func setTheme(into *map[string]string, v value) {
	theme := map[string]string{}
	if v.raw[0] == '"' {
		if word, ok := v.oneOf("light", "dark", "auto"); ok {
			theme["mode"] = word
		}
	} else {
		fill(v, themeFields, &theme)
	}
	*into = theme
}

const (
	maxPath      = 1024
	maxReturnURL = 2048
)

// validPath reports whether a path stays where it is joined to. A browser takes a backslash for a
// slash, and two slashes for the start of a host.
func validPath(path string) bool {
	u, err := url.Parse(path)
	return err == nil && strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "\\\r\n\t") &&
		u.Host == "" && u.Scheme == "" && plainPath(u.Path) // decoded: to a browser %2e is a dot
}

func validReturnURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsAny(text, "\\\r\n\t \"'<>")
}
