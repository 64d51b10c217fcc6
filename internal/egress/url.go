package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// URLCode says which rule a URL breaks; it is part of the API.
type URLCode string

const (
	URLInvalid    URLCode = "url_invalid"
	URLScheme     URLCode = "url_scheme"
	URLUserinfo   URLCode = "url_userinfo"
	URLPort       URLCode = "url_port"
	URLNotAllowed URLCode = "url_not_allowed"
)

// URLError says why a URL is not accepted, in a sentence for whoever typed it. It never repeats
// the URL, which may hold a password where none belongs.
type URLError struct {
	Code    URLCode
	Message string
}

func (e *URLError) Error() string { return e.Message }

// CheckURL judges the URL of an endpoint when it is registered or changed, and returns it as it
// will be dialled and should be stored: scheme and host in lower case, the host in ASCII, no
// fragment, path and query byte for byte (bytes that may not stand in a request line are
// percent-encoded). internal is the tenant's class. The error is a *URLError.
//
// No name is looked up: what a name means can change in a second, so that is judged whenever it
// is dialled.
func (g *Guard) CheckURL(raw string, internal bool) (string, error) {
	u, err := g.ParseURL(raw, internal)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// ParseURL is CheckURL for those who are going to send a request to it.
func (g *Guard) ParseURL(raw string, internal bool) (*url.URL, error) {
	tooLong := &URLError{URLInvalid, "The URL is longer than " + strconv.Itoa(outbox.MaxURL) + " bytes."}
	if len(raw) > outbox.MaxURL {
		return nil, tooLong
	}
	u, err := url.Parse(raw)
	if err != nil {
		// Go's own error repeats the URL.
		return nil, &URLError{URLInvalid, "This is not a URL: it needs the form https://host/path, without spaces or control characters in the host, and with % only before two hexadecimal digits."}
	}
	if !g.policy.allowsScheme(u.Scheme) {
		return nil, &URLError{URLScheme, "The URL must begin with " + g.schemes() + "."}
	}
	if u.User != nil {
		return nil, &URLError{URLUserinfo, "The URL holds a user name or password before the host; leave them out and send an Authorization header instead."}
	}
	if u.Opaque != "" || u.Host == "" || u.Hostname() == "" {
		return nil, &URLError{URLInvalid, "The URL has no host; it needs the form https://host/path."}
	}
	host, err := g.checkHost(u.Hostname(), strings.HasPrefix(u.Host, "["), internal)
	if err != nil {
		return nil, err
	}
	port, err := g.checkPort(u)
	if err != nil {
		return nil, err
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	clean := &url.URL{Scheme: u.Scheme, Host: host, ForceQuery: u.ForceQuery}
	path, query := rawTarget(raw)
	clean.RawPath = encodeIllegal(path)
	if clean.Path, err = url.PathUnescape(clean.RawPath); err != nil {
		return nil, &URLError{URLInvalid, "The path of the URL has a % that is not followed by two hexadecimal digits."}
	}
	clean.RawQuery = encodeIllegal(query)
	if len(clean.String()) > outbox.MaxURL { // encoding made it longer
		return nil, tooLong
	}
	return clean, nil
}

// checkHost returns the host as it is dialled; an IPv6 address comes without its brackets.
func (g *Guard) checkHost(raw string, bracketed, internal bool) (string, error) {
	if bracketed {
		addr, err := netip.ParseAddr(raw)
		if err != nil || !addr.Is6() {
			return "", &URLError{URLInvalid, "The host in brackets is not an IPv6 address."}
		}
		return g.checkLiteral(addr, internal)
	}
	host, ok := canonicalHost(raw)
	if !ok {
		return "", &URLError{URLInvalid, "The host of the URL is not a host name: letters, digits, - and _ in labels of 1 to 63, joined by dots."}
	}
	if numeric(host) {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "", &URLError{URLNotAllowed, "The host of the URL is a number, not a name; an IPv4 address is written as four decimal numbers from 0 to 255."}
		}
		return g.checkLiteral(addr, internal)
	}
	if loopbackName(host) && len(g.loopbacks(internal)) == 0 {
		return "", &URLError{URLNotAllowed, "The URL points to this machine (" + host + "); use a host that can be reached from the internet."}
	}
	if addr, ok := metadataNames[host]; ok && !g.policy.opens(addr, internal) {
		return "", &URLError{URLNotAllowed, "The URL points to a cloud metadata service; use a host that can be reached from the internet."}
	}
	return host, nil
}

func (g *Guard) checkLiteral(addr netip.Addr, internal bool) (string, error) {
	if g.policy.judge(addr, internal) != "" {
		return "", &URLError{URLNotAllowed, "The URL points to an address that is not on the public internet; use one that can be reached from there."}
	}
	// A mapped address is dialled as the IPv4 address it is, so it is shown as one.
	return addr.Unmap().String(), nil
}

func (g *Guard) checkPort(u *url.URL) (string, error) {
	if u.Port() == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || n == 0 {
		return "", &URLError{URLPort, "The port of the URL must be a number from 1 to 65535."}
	}
	if !g.policy.allowsPort(uint16(n)) {
		return "", &URLError{URLPort, "Port " + strconv.FormatUint(n, 10) + " is not open to webhooks; use 443, 80 or another port meant for the web."}
	}
	return strconv.FormatUint(n, 10), nil
}

func (g *Guard) schemes() string {
	switch {
	case !g.policy.allowsScheme("http"):
		return "https://"
	case !g.policy.allowsScheme("https"):
		return "http://"
	}
	return "https:// or http://"
}

// rawTarget cuts path and query out of a URL as they were typed. net/url decodes and encodes
// paths anew if one byte of them needs encoding, which turns %2F elsewhere in the path into a
// slash: another resource.
func rawTarget(raw string) (path, query string) {
	raw, _, _ = strings.Cut(raw, "#")
	_, rest, _ := strings.Cut(raw, "://")
	target := ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		target = rest[i:]
	}
	path, query, _ = strings.Cut(target, "?")
	return path, query
}

// encodeIllegal percent-encodes the bytes that may not stand in a request target (RFC 3986,
// sections 3.3 and 3.4) and leaves every other byte as it is.
func encodeIllegal(s string) string {
	const hex = "0123456789ABCDEF"
	var out []byte
	for i := range len(s) {
		c := s[i]
		if c > ' ' && c < 0x7f && !strings.ContainsRune("\"<>\\^`{|}", rune(c)) {
			out = append(out, c)
			continue
		}
		out = append(out, '%', hex[c>>4], hex[c&15])
	}
	return string(out)
}
