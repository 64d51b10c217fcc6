package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	second = time.Second
	minute = time.Minute
	day    = 24 * time.Hour
)

// list splits at commas; spaces around and empty items do not count.
func list(v string) []string {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func oneOf(v string, allowed ...string) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	return fmt.Errorf("%q must be %s", v, strings.Join(allowed, " or "))
}

var durationPart = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// parseDuration reads 90s, 8h, 30d, 1d12h: Go's durations, and days of 24 hours in front.
func parseDuration(v string) (time.Duration, error) {
	wrong := fmt.Errorf("%q must be a duration such as 90s, 8h or 30d", v)
	var days time.Duration
	if m := durationPart.FindStringSubmatch(v); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n > 36_500 { // a century; more would overflow on the way
			return 0, wrong
		}
		if days = time.Duration(n) * day; m[2] == "" {
			return days, nil
		}
		v = m[2]
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, wrong
	}
	return days + d, nil
}

func setDuration(to *time.Duration, v string, least, most time.Duration) error {
	d, err := parseDuration(v)
	if err != nil {
		return err
	}
	if d < least || d > most {
		return fmt.Errorf("%s must be from %s to %s", v, FormatDuration(least), FormatDuration(most))
	}
	*to = d
	return nil
}

// FormatDuration writes whole days as 30d, anything else as Go does without zero parts.
func FormatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var sizeUnits = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// FormatSize writes a number of bytes for people: "17.2 GiB".
func FormatSize(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		value /= 1 << 10
		if unit = u; value < 1<<10 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,6}) ?([A-Za-z]*)$`)

// parseSize reads 262144, 256KiB, 1MiB. A unit of a thousand is not taken: 256KB would be one
// size to one reader and another to the next.
func parseSize(v string) (int64, error) {
	m := sizePattern.FindStringSubmatch(v)
	if m == nil {
		return 0, fmt.Errorf("%q must be a size such as 256KiB or 1MiB", v)
	}
	unit, known := sizeUnits[m[2]]
	if !known {
		return 0, fmt.Errorf("%q has the unit %q; use B, KiB, MiB, GiB or TiB", v, m[2])
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n * unit, err
}

func setInt(to *int, v string, least, most int) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q must be a whole number", v)
	}
	if n < least || n > most {
		return fmt.Errorf("%d must be from %d to %d", n, least, most)
	}
	*to = n
	return nil
}

func setPrefixes(to *[]netip.Prefix, v string) error {
	for _, item := range list(v) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			return fmt.Errorf("%q must be a CIDR such as 10.0.0.0/8", item)
		}
		if p != p.Masked() {
			return fmt.Errorf("%q has bits set beyond its length; did you mean %s?", item, p.Masked())
		}
		*to = append(*to, p)
	}
	return nil
}

func setSchemes(c *Config, v string) error {
	for _, scheme := range list(v) {
		if err := oneOf(scheme, "http", "https"); err != nil {
			return err
		}
		c.EndpointSchemes = append(c.EndpointSchemes, scheme)
	}
	return nil
}

func setListen(c *Config, v string) error { return setAddress(&c.Listen, v) }

func setAddress(to *string, v string) error {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q must be host:port, such as 127.0.0.1:8420 or :0", v)
	}
	*to = v
	return nil
}

// setDatabase never repeats the value: it may hold a password.
func setDatabase(to *Secret, v string) error {
	if path, ok := strings.CutPrefix(v, sqliteScheme); ok {
		switch {
		case path == "":
			return errors.New("names no file; write sqlite://waybill.db")
		case strings.Contains(path, ":memory:"):
			return errors.New("an accepted event must outlive the process; a database in memory does not")
		case strings.ContainsAny(path, "?#"):
			return errors.New("takes no parameters after the SQLite file's path")
		}
		*to = Secret(v)
		return nil
	}
	if !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
		return errors.New("must begin with sqlite:// or postgres://")
	}
	// What is wrong with it is not told: the text may hold the password. Parameters may name files
	// that only the server's machine has.
	address, _, _ := strings.Cut(v, "?")
	if _, err := pgconn.ParseConfig(address); err != nil {
		return errors.New("is not a PostgreSQL address: write postgres://user:password@host:5432/database, where a password's : / @ # % ? and spaces become %3A %2F %40 %23 %25 %3F %20")
	}
	*to = Secret(v)
	return nil
}

func setAPIKey(c *Config, v string) error {
	for _, r := range v {
		if r <= ' ' || r > '~' {
			return errors.New("must be visible ASCII without spaces, as it travels in a header")
		}
	}
	c.APIKey = Secret(v)
	return nil
}

var headerPrefix = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}-$`)

func setHeaderPrefix(c *Config, v string) error {
	if !headerPrefix.MatchString(v) {
		return fmt.Errorf("%q must be lower-case letters, digits and - and end with -", v)
	}
	if strings.HasPrefix(v, "webhook-") || strings.HasPrefix(v, "content-") {
		return fmt.Errorf("%q belongs to a standard", v)
	}
	c.HeaderPrefix = v
	return nil
}

func setUserAgent(c *Config, v string) error {
	for _, r := range v {
		if r < ' ' || r > '~' {
			return errors.New("must be visible ASCII")
		}
	}
	c.UserAgent = v
	return nil
}

// isLoopback reports whether only this machine can reach the listener.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// sameDatabase reports whether two URLs name the same kind of database; a role of PostgreSQL
// cannot migrate a SQLite file.
func sameDatabase(a, b Secret) bool {
	return strings.HasPrefix(a.Reveal(), sqliteScheme) == strings.HasPrefix(b.Reveal(), sqliteScheme)
}

// hasPassword reports whether a database URL carries a password.
func hasPassword(v string) bool {
	u, err := url.Parse(v)
	if err != nil {
		return strings.Contains(v, "@")
	}
	_, has := u.User.Password()
	return has
}
