package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// fallbackDelay is how long one address may take before the next is tried beside it
	// (RFC 8305, "Connection Attempt Delay").
	fallbackDelay = 250 * time.Millisecond
	// maxAddresses is how many of a host's addresses are tried. All are judged.
	maxAddresses = 8
)

// target is one origin as it is dialled for one class of tenants.
type target struct {
	guard       *Guard
	host        string
	literal     netip.Addr // valid where the host is an address
	port        uint16
	internal    bool
	dialer      net.Dialer
	tls         *tls.Config      // nil: plain
	certificate *tls.Certificate // nil: none is shown
}

// connection dials for the origin's scheme: plain, or with the handshake done. It is not for one
// request alone, so it has an end of its own.
func (t *target) connection() (*Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	if t.tls == nil {
		return t.dial(ctx, &Timing{})
	}
	return t.dialTLS(ctx)
}

func (t *target) dialTLS(ctx context.Context) (*Conn, error) {
	var timing Timing
	conn, err := t.dial(ctx, &timing)
	if err != nil {
		return nil, err
	}
	cfg := t.tls.Clone()
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		conn.certificateAsked = true
		if t.certificate != nil {
			return t.certificate, nil
		}
		return &tls.Certificate{}, nil // none
	}
	began := time.Now()
	secured := tls.Client(conn.socket, cfg)
	err = secured.HandshakeContext(ctx)
	conn.timing.TLS = max(time.Since(began), 1)
	if err != nil {
		conn.cut()
		return nil, &DialError{Step: StepTLS, Timing: conn.timing, CertificateAsked: conn.certificateAsked, Err: err}
	}
	if chain := secured.ConnectionState().PeerCertificates; len(chain) > 0 {
		conn.certificateUntil = chain[0].NotAfter
	}
	conn.Conn = secured
	return conn, nil
}

// dial looks the host up, judges every address, and connects to one of them.
func (t *target) dial(ctx context.Context, timing *Timing) (*Conn, error) {
	t.guard.trim()
	if t.guard.policy.Proxy != nil {
		return t.tunnel(ctx, timing)
	}
	began := time.Now()
	addrs, err := t.lookup(ctx)
	if !t.literal.IsValid() {
		timing.DNS = max(time.Since(began), 1)
	}
	if err != nil {
		step := StepLookup
		if _, denied := errors.AsType[*DeniedError](err); denied {
			step = StepPolicy
		}
		return nil, &DialError{Step: step, Timing: *timing, Err: err}
	}
	began = time.Now()
	conn, err := t.connect(ctx, addrs)
	timing.Connect = max(time.Since(began), 1)
	if err != nil {
		step := StepConnect
		if _, denied := errors.AsType[*DeniedError](err); denied {
			step = StepPolicy
		}
		return nil, &DialError{Step: step, Timing: *timing, Err: err}
	}
	c, err := newConn(conn, *timing, &t.guard.open)
	if err != nil {
		conn.Close()
		return nil, &DialError{Step: StepConnect, Timing: *timing, Err: err}
	}
	return c, nil
}

// lookup returns the addresses of the host, all of them judged. One forbidden address refuses
// the host: the network would be free to pick it, and nobody has a public webhook that is also
// a private one.
func (t *target) lookup(ctx context.Context) ([]netip.AddrPort, error) {
	addrs, err := t.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, addr := range addrs {
		if what := t.guard.policy.judge(addr, t.internal); what != "" {
			return nil, &DeniedError{what}
		}
		all = append(all, netip.AddrPortFrom(addr.Unmap(), t.port))
	}
	all = slices.Compact(all)
	return all[:min(len(all), maxAddresses)], nil
}

func (t *target) resolve(ctx context.Context) ([]netip.Addr, error) {
	if t.literal.IsValid() {
		return []netip.Addr{t.literal}, nil
	}
	if numeric(t.host) {
		// ParseURL lets none through; a stored URL that was edited by hand must not reach a
		// resolver that takes 127.1 for an address.
		return nil, &DeniedError{"numeric host"}
	}
	if loopbackName(t.host) {
		// RFC 6761, section 6.3: never asked of DNS. A machine whose IPv6 loopback is not opened
		// still has an IPv4 one.
		if open := t.guard.loopbacks(t.internal); len(open) > 0 {
			return open, nil
		}
		return nil, &DeniedError{"loopback"}
	}
	name := t.host
	if strings.Contains(name, ".") && !t.internal {
		// Absolute: the search list of this machine's network is not for strangers' names.
		name += "."
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	addrs, err := t.guard.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: t.host, IsNotFound: true}
	}
	return addrs, nil
}

// connect dials the addresses in order, each beside those before it once they failed or took
// longer than fallbackDelay, and returns the first connection. The error is the first address's.
func (t *target) connect(ctx context.Context, addrs []netip.AddrPort) (*net.TCPConn, error) {
	if len(addrs) == 1 {
		return t.connectOne(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn *net.TCPConn
		err  error
		i    int
	}
	results := make(chan result, len(addrs))
	errs := make([]error, len(addrs))
	started, failed := 0, 0
	for {
		if started < len(addrs) {
			i := started
			started++
			go func() {
				conn, err := t.connectOne(ctx, addrs[i])
				results <- result{conn, err, i}
			}()
		}
		var next <-chan time.Time
		var delay *time.Timer
		if started < len(addrs) {
			delay = time.NewTimer(fallbackDelay)
			next = delay.C
		}
		select {
		case <-next:
			continue
		case r := <-results:
			if delay != nil {
				delay.Stop()
			}
			if r.err == nil {
				// Whoever comes in later is hung up on; cancel hurries them.
				go func(running int) {
					for range running {
						if late := <-results; late.conn != nil {
							late.conn.Close()
						}
					}
				}(started - failed - 1)
				return r.conn, nil
			}
			errs[r.i] = r.err
			if failed++; failed == len(addrs) {
				return nil, errs[0]
			}
		}
	}
}

func (t *target) connectOne(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	return t.dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, addr)
}

// control is called by the socket layer with the address it is about to connect to: the last
// word, and independent of everything that led here.
func (t *target) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	dialled, err := netip.ParseAddrPort(address)
	if err != nil {
		return &DeniedError{"unreadable address"}
	}
	if !strings.HasPrefix(network, "tcp") || dialled.Port() != t.port {
		return &DeniedError{"unexpected socket"}
	}
	if what := t.guard.policy.judge(dialled.Addr(), t.internal); what != "" {
		return &DeniedError{what}
	}
	return nil
}

// newResolver makes Go's own resolver. The C library's reads 127.1 and 0x7f000001 as addresses,
// and which of the two a build has would otherwise depend on the machine that built it.
func newResolver(server string) (*net.Resolver, error) {
	r := &net.Resolver{PreferGo: true}
	if server == "" {
		return r, nil
	}
	if _, err := netip.ParseAddrPort(server); err != nil {
		return nil, fmt.Errorf("resolver %q is not an address with a port", server)
	}
	r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}
	return r, nil
}
