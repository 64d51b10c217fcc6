package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParseProxy reads the address of an egress proxy: http://host:port, with a user name and password
// before the host if it wants them. The error repeats nothing of it.
func ParseProxy(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must be an address such as http://proxy.internal:3128")
	}
	return u, nil
}

// Proxy names the proxy that everything goes through, "" where there is none. Its password is not
// part of it.
func (g *Guard) Proxy() string {
	if g.policy.Proxy == nil {
		return ""
	}
	return g.policy.Proxy.Host
}

// maxProxyAnswer bounds what a proxy answers before the tunnel begins.
const maxProxyAnswer = 8 << 10

// tunnel has the proxy connect to the target. The proxy resolves the name and judges the address:
// it is the policy point, and what is opened or forbidden here is not asked. Only what can be told
// from the URL alone is refused as ever: addresses written as numbers, and names of this machine.
func (t *target) tunnel(ctx context.Context, timing *Timing) (*Conn, error) {
	fail := func(step Step, err error) (*Conn, error) {
		return nil, &DialError{Step: step, Timing: *timing, Err: err}
	}
	switch {
	case t.literal.IsValid():
		if what := t.guard.policy.judge(t.literal, t.internal); what != "" {
			return fail(StepPolicy, &DeniedError{what})
		}
	case numeric(t.host):
		return fail(StepPolicy, &DeniedError{"numeric host"})
	case loopbackName(t.host) && len(t.guard.loopbacks(t.internal)) == 0:
		return fail(StepPolicy, &DeniedError{"loopback"})
	}
	proxy := t.guard.policy.Proxy
	began := time.Now()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", proxy.Host)
	if err != nil {
		timing.Connect = max(time.Since(began), 1)
		// Not as if the customer's server had refused: this is ours to mend.
		return fail(StepConnect, fmt.Errorf("egress proxy: %v", err))
	}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	err = connectThrough(raw, net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), proxy.User)
	timing.Connect = max(time.Since(began), 1)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	tcp, isTCP := raw.(*net.TCPConn)
	if err == nil && !isTCP {
		err = errors.New("egress proxy: not a TCP connection")
	}
	if err != nil {
		stop()
		raw.Close()
		if _, denied := errors.AsType[*DeniedError](err); denied {
			return fail(StepPolicy, err)
		}
		return fail(StepConnect, err)
	}
	c, err := newConn(tcp, *timing, &t.guard.open)
	if err != nil {
		raw.Close()
		return fail(StepConnect, err)
	}
	c.proxied = true
	return c, nil
}

// connectThrough asks for a tunnel (RFC 9110, section 9.3.6).
func connectThrough(conn net.Conn, authority string, user *url.Userinfo) error {
	request := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if user != nil {
		password, _ := user.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return fmt.Errorf("egress proxy: %w", err)
	}
	// Byte by byte: what comes behind the empty line belongs to the tunnel.
	var head strings.Builder
	var one [1]byte
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		if head.Len() >= maxProxyAnswer {
			return errors.New("egress proxy: its answer does not end")
		}
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			return fmt.Errorf("egress proxy: %w", err)
		}
		head.WriteByte(one[0])
	}
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head.String())), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return errors.New("egress proxy: not an HTTP answer")
	}
	switch {
	case res.StatusCode >= 200 && res.StatusCode <= 299:
		return nil
	case res.StatusCode == http.StatusForbidden:
		return &DeniedError{"proxy"}
	}
	return fmt.Errorf("egress proxy: it answered %d", res.StatusCode)
}
