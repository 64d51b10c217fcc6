package egress

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// hostProfile maps a host to the ASCII form that is dialled, as a browser would: case folded,
// full-width digits and dots made plain. Unlike the strict profile it lets an underscore stand,
// which real hosts have.
var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

const (
	maxHost  = 253
	maxLabel = 63
)

// canonicalHost returns the one form of a host that is stored, judged and dialled: lower-case
// ASCII without a final dot. ok is false if it is no host at all.
func canonicalHost(host string) (string, bool) {
	if !ascii(host) {
		mapped, err := hostProfile.ToASCII(host)
		if err != nil {
			return "", false
		}
		host = mapped
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || len(host) > maxHost {
		return "", false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > maxLabel {
			return "", false
		}
		for i := range len(label) {
			c := label[i]
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return "", false
			}
		}
	}
	return host, true
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// numeric reports whether the host ends in a number, so that some resolver reads it as an IPv4
// address (127.1, 0x7f.1, 2130706433; the "ends in a number" rule of the WHATWG URL standard).
// Go's resolver takes them for names, the C library's does not.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// loopbackName reports whether the host means this machine whatever a resolver says (RFC 6761).
func loopbackName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// metadataNames are how clouds call their metadata service. They are refused by name so that
// registering one says so at once; the wall is the judgement of the address they resolve to.
var metadataNames = map[string]netip.Addr{
	"metadata":                   metadataService,
	"metadata.google.internal":   metadataService,
	"metadata.goog":              metadataService,
	"instance-data":              metadataService,
	"instance-data.ec2.internal": metadataService,
}

var metadataService = netip.AddrFrom4([4]byte{169, 254, 169, 254})
