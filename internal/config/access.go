package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

var errPublicURL = errors.New("must be an address such as https://hooks.example.com or https://example.com/webhooks")

// setPublicURL reads the base of links: scheme, host and perhaps a path, which is kept without a
// slash at its end.
func setPublicURL(c *Config, v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return errPublicURL // never the value: a person may have put a password into it
	}
	base := strings.TrimRight(u.Path, "/")
	if base != "" && (path.Clean(base) != base || strings.ContainsAny(base, "\\ ;")) {
		return errPublicURL
	}
	c.PublicURL = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: base}
	return nil
}

// frameAncestor is a host-source of Content-Security-Policy with its scheme, or 'self'. What is
// put into a header can be nothing else.
var frameAncestor = regexp.MustCompile(`^('self'|https?://(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?)$`)

func setFrameAncestors(c *Config, v string) error {
	for _, site := range strings.Fields(strings.ReplaceAll(v, ",", " ")) {
		if !frameAncestor.MatchString(site) {
			return fmt.Errorf("%q must be sites such as https://app.example.com or https://*.example.com, separated by commas", site)
		}
		c.FrameAncestors = append(c.FrameAncestors, site)
	}
	return nil
}

var environmentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func setEnvironment(c *Config, v string) error {
	if !environmentName.MatchString(v) {
		return errors.New("must be a name such as production, of A-Z a-z 0-9 _ . -, at most 64 characters")
	}
	c.Environment = v
	return nil
}

// Role is a part of the work.
type Role string

const (
	RoleAPI       Role = "api"
	RoleInbound   Role = "inbound"   // webhooks that come in
	RolePortal    Role = "portal"    // pages for customers
	RoleDashboard Role = "dashboard" // pages for operators
	RoleDispatch  Role = "dispatch"  // routing and sending
)

var allRoles = Roles{RoleAPI, RoleInbound, RolePortal, RoleDashboard, RoleDispatch}

// Roles are the parts of the work that a process does.
type Roles []Role

// Has reports whether the role is among them.
func (r Roles) Has(role Role) bool { return slices.Contains(r, role) }

// NeedKeys reports whether a process without any key could not be used.
func (r Roles) NeedKeys() bool { return r.Has(RoleAPI) || r.Has(RoleDashboard) }

func setRoles(c *Config, v string) error {
	c.Roles = nil
	for _, item := range list(v) {
		switch role := Role(item); {
		case item == "all":
			c.Roles = allRoles
		case !allRoles.Has(role):
			return fmt.Errorf("%q must be all, api, inbound, portal, dashboard or dispatch", item)
		case !c.Roles.Has(role):
			c.Roles = append(c.Roles, role)
		}
	}
	if len(c.Roles) == 0 {
		return errors.New("must name what this process does")
	}
	return nil
}

var accent = regexp.MustCompile(`^(#[0-9A-Fa-f]{6})?$`)

func setAccent(c *Config, v string) error {
	if !accent.MatchString(v) {
		return fmt.Errorf("%q must be a colour such as #3459c7", v)
	}
	c.PortalAccent = v
	return nil
}

var originPattern = regexp.MustCompile(`^(\*|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)$`)

func setOrigins(c *Config, v string) error {
	for _, origin := range list(v) {
		if !originPattern.MatchString(origin) {
			return fmt.Errorf("%q must be origins such as https://app.example.com, separated by commas, or *", origin)
		}
		c.CORSOrigins = append(c.CORSOrigins, origin)
	}
	return nil
}
