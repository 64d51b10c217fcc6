package egress

import "net/netip"

// block is a range of addresses that no endpoint may have, and what it is.
type block struct {
	prefix netip.Prefix
	what   string
}

// denied4 (blocks.go) are the IPv4 ranges that are refused; everything else is public.
//
// From the IANA IPv4 Special-Purpose Address Registry (RFC 6890) as of 2025-10-09, every row, the
// globally reachable ones too: no webhook receiver lives in them. Those that come from elsewhere
// say so. tools/iana writes them from its tables.

// global6 is the only IPv6 space that is handed out for global unicast (IANA Internet Protocol
// Version 6 Address Space). Everything outside is refused without being listed: the unspecified
// and loopback addresses, every embedding of IPv4 except the mapped one (IPv4-compatible, SIIT,
// NAT64 with both its prefixes), discard-only, segment routing, unique local, link local, site
// local, multicast, and what is not assigned yet.
var global6 = netip.MustParsePrefix("2000::/3")

// denied6 (blocks.go) are the exceptions within global6: IANA IPv6 Special-Purpose Address Registry
// (RFC 6890) as of 2025-10-09.

// special returns what kind of address this is if it is not a public one, else "".
//
// A mapped address (::ffff:0:0/96) is judged as the IPv4 address it is: the socket layer dials it
// as one. An address with a zone names an interface of this machine and is never public.
func special(addr netip.Addr) string {
	if addr.Zone() != "" {
		return "scoped"
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return match(denied4, addr)
	}
	if !global6.Contains(addr) {
		return "not global unicast"
	}
	return match(denied6, addr)
}

func match(table []block, addr netip.Addr) string {
	for _, b := range table {
		if b.prefix.Contains(addr) {
			return b.what
		}
	}
	return ""
}
