package egress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection to a judged address.
type Conn struct {
	net.Conn         // the socket, or TLS over it
	socket           *socket
	timing           Timing
	certificateAsked bool
	certificateUntil time.Time
	proxied          bool // the other end of the socket is the egress proxy
	idleSince        time.Time
	open             *atomic.Int64
	closed           atomic.Bool
	first            [1]byte
}

func newConn(tcp *net.TCPConn, timing Timing, open *atomic.Int64) (*Conn, error) {
	s, err := newSocket(tcp)
	if err != nil {
		return nil, err
	}
	open.Add(1)
	return &Conn{Conn: s, socket: s, timing: timing, open: open}, nil
}

// Opened reports that the address is one only an allow list opens: of a private network, of this
// machine.
func (c *Conn) Opened() bool {
	if c.proxied {
		return false // the proxy judges, and nothing is opened here
	}
	remote, err := netip.ParseAddrPort(c.socket.RemoteAddr().String())
	return err != nil || special(remote.Addr()) != ""
}

// Timing says how long it took to get the connection. For one that is used again, that was
// another request's time.
func (c *Conn) Timing() Timing { return c.timing }

// CertificateUntil is when the server's certificate ends; zero without TLS.
func (c *Conn) CertificateUntil() time.Time { return c.certificateUntil }

// CertificateAsked reports that the server asked for a client certificate, of which there is
// none. In TLS 1.3 the refusal comes only after the handshake, in place of the answer.
func (c *Conn) CertificateAsked() bool { return c.certificateAsked }

// ReadFrom sends what is left of r in pieces larger than a request's buffer.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// Close closes an unused connection; over TLS it says so first.
func (c *Conn) Close() error { return c.close(c.Conn) }

// cut closes a connection that is in use. It does not say farewell: to a server that stopped
// reading that takes seconds.
func (c *Conn) cut() { _ = c.close(c.socket) }

func (c *Conn) close(what io.Closer) error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	c.open.Add(-1)
	return what.Close()
}

// expire ends what is reading or writing, and whatever tries to from now on.
func (c *Conn) expire() { _ = c.socket.SetDeadline(time.Unix(1, 0)) }

// errEarly is the end of a connection whose other side speaks first. Whatever it says, it is no
// answer to a request that it has not seen.
var errEarly = errors.New("bytes came before the request was sent")

// glance returns nil if the other side has neither sent anything that was not asked for nor hung
// up, else what it did. Over TLS the layer's own messages are digested, and bytes it already
// unpacked are seen. Only the one who has the connection may ask, and only between two requests:
// after an error the connection is of no use.
func (c *Conn) glance() error {
	c.socket.glancing = true
	n, err := c.Conn.Read(c.first[:])
	c.socket.glancing = false
	switch {
	case n > 0:
		return errEarly
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return err
}

// socket is a TCP connection that can be read without waiting.
type socket struct {
	*net.TCPConn
	raw      syscall.RawConn
	glancing bool // Read does not wait: where nothing is there it fails as if out of time

	// Of the read without waiting, kept here so that it costs no allocation.
	read func(fd uintptr) bool
	into []byte
	n    int
	err  error
}

func newSocket(tcp *net.TCPConn) (*socket, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{TCPConn: tcp, raw: raw}
	s.read = func(fd uintptr) bool {
		s.n, s.err = syscall.Read(int(fd), s.into)
		return true // do not wait until there is more
	}
	return s, nil
}

func (s *socket) Read(p []byte) (int, error) {
	if !s.glancing {
		return s.TCPConn.Read(p)
	}
	s.into = p
	err := s.raw.Read(s.read)
	s.into = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(s.err, syscall.EAGAIN):
		return 0, os.ErrDeadlineExceeded // to crypto/tls, an error after which reading goes on
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}
