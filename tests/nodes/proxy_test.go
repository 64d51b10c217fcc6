package nodes

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a node and its database and can spoil the line in three ways.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	lines map[net.Conn]bool
	hole  bool          // what arrives is swallowed
	stall chan struct{} // not nil: what arrives waits until it is closed
}

// newProxy returns a proxy for the database, and the way to the database that leads through it.
func newProxy(t *testing.T, database string) (*proxy, string) {
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: u.Host, lines: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.heal()
		p.reset()
		serving.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

// blackhole swallows everything in both directions: nobody hears that the line is dead.
func (p *proxy) blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = true
}

// pause holds everything back and delivers it late, when the line is healed.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = make(chan struct{})
}

// reset breaks every connection.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.lines {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset, not an orderly end
		}
		conn.Close()
	}
}

// heal lets everything through again. Lines that lost something in the hole are broken.
func (p *proxy) heal() {
	p.mu.Lock()
	holed := p.hole
	p.hole = false
	if p.stall != nil {
		close(p.stall)
		p.stall = nil
	}
	p.mu.Unlock()
	if holed {
		p.reset()
	}
}

func (p *proxy) serve(near net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		near.Close()
		return
	}
	p.mu.Lock()
	p.lines[near], p.lines[far] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(far, near) })
	both.Go(func() { p.copy(near, far) })
	both.Wait()
	p.mu.Lock()
	delete(p.lines, near)
	delete(p.lines, far)
	p.mu.Unlock()
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(to, buf[:n]) || err != nil {
			return
		}
	}
}

// pass hands on what arrived, as the line's state says.
func (p *proxy) pass(to io.Writer, data []byte) bool {
	for {
		p.mu.Lock()
		hole, stall := p.hole, p.stall
		p.mu.Unlock()
		switch {
		case hole:
			return true
		case stall != nil:
			<-stall
		default:
			_, err := to.Write(data)
			return err == nil
		}
	}
}
