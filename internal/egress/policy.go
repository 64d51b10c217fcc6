package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Policy says what may be dialled beyond, and of, the public internet. The zero Policy opens
// nothing and allows http and https on DefaultPorts.
type Policy struct {
	// Allow are ranges opened to every tenant: for development, and for closed networks.
	Allow []netip.Prefix
	// AllowInternal are ranges opened to internal tenants only.
	AllowInternal []netip.Prefix
	// Ports that may be dialled, also in opened ranges. The zero value means DefaultPorts.
	Ports Ports
	// Schemes that may be used: "http", "https". nil means both.
	Schemes []string
	// Proxy is what everything goes through, and where it is judged; see ParseProxy. nil: none. No
	// variable of the environment has any say in it.
	Proxy *url.URL
}

// judge returns "" if the address may be dialled for a tenant of this class, else what kind of
// address it is.
func (p *Policy) judge(addr netip.Addr, internal bool) string {
	what := special(addr)
	if what == "" || p.opens(addr, internal) {
		return ""
	}
	return what
}

// opens reports whether an allow list of the class covers the address. A scoped address is in no
// prefix, so no list opens one.
func (p *Policy) opens(addr netip.Addr, internal bool) bool {
	addr = addr.Unmap()
	covers := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
	return slices.ContainsFunc(p.Allow, covers) || internal && slices.ContainsFunc(p.AllowInternal, covers)
}

func (p *Policy) allowsScheme(scheme string) bool {
	if scheme != "http" && scheme != "https" {
		return false
	}
	return p.Schemes == nil || slices.Contains(p.Schemes, scheme)
}

func (p *Policy) allowsPort(port uint16) bool {
	if p.Ports.ranges == nil {
		return DefaultPorts.Contains(port)
	}
	return p.Ports.Contains(port)
}

// Ports is a set of TCP ports.
type Ports struct {
	ranges []portRange
}

type portRange struct {
	first, last uint16
	deny        bool
}

// DefaultPorts are the web's, and everything unprivileged but the places where databases, caches
// and cluster agents listen without asking who is there: Docker, etcd, MySQL, PostgreSQL, Redis,
// Elasticsearch, kubelet, memcached, MongoDB.
var DefaultPorts = mustPorts("80,443,1024-65535,!2375,!2379,!3306,!5432,!6379,!9200,!10250,!11211,!27017")

func mustPorts(s string) Ports {
	p, err := ParsePorts(s)
	if err != nil {
		panic(err)
	}
	return p
}

// ParsePorts reads a set of ports: single ones, ranges, and with a leading ! what is taken out
// again, separated by commas: "443,8000-8999,!8080". The order does not matter.
func ParsePorts(s string) (Ports, error) {
	var p Ports
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		body, deny := strings.CutPrefix(item, "!")
		first, last, isRange := strings.Cut(body, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || lo == 0 || lo > hi {
			return Ports{}, fmt.Errorf("%q is neither a port, a range such as 1024-65535, nor one of these with a ! before it", item)
		}
		p.ranges = append(p.ranges, portRange{uint16(lo), uint16(hi), deny})
	}
	return p, nil
}

// Contains reports whether the port is in the set. Port 0 never is.
func (p Ports) Contains(port uint16) bool {
	in := false
	for _, r := range p.ranges {
		if r.first <= port && port <= r.last {
			if r.deny {
				return false
			}
			in = true
		}
	}
	return in && port != 0
}

// String gives the set in the form ParsePorts reads.
func (p Ports) String() string {
	var items []string
	for _, r := range p.ranges {
		item := strconv.Itoa(int(r.first))
		if r.last != r.first {
			item += "-" + strconv.Itoa(int(r.last))
		}
		if r.deny {
			item = "!" + item
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}
