package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeInline is how long a request's body may be for the answer to be read only once it is
	// written. It fits into the socket's buffer, so that a receiver that answers without reading
	// does not hold it up.
	writeInline = 16 << 10
	// lastWords is how long what a receiver said before it hung up is waited for. It has arrived
	// by then; the limit is there for the case nobody thought of.
	lastWords = time.Second
)

// Trip is what was seen of a request on its way.
type Trip struct {
	Conn      *Conn     // nil: it did not get one
	Reused    bool      // the connection was used before
	FirstByte time.Time // of the answer; zero: none came
}

// RoundTrip sends one request and returns the answer whatever its status: redirects are not
// followed, cookies not kept, bodies not unpacked. The URL must come from ParseURL. The caller
// must close the body; closing one that was not read to its end closes the connection. Nothing of
// the request is read any more once the body is closed or an error returned.
//
// If no connection came about the error is a *DialError, if ctx ended first its cause, else what
// went wrong with the connection or the answer: io.EOF is a receiver that hung up without one.
func (g *Guard) RoundTrip(req *http.Request, peer Peer, trip *Trip) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, err := g.pool(req.URL, peer)
	if err != nil {
		return nil, err
	}
	conn, reused, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	trip.Conn, trip.Reused = conn, reused
	x := &exchange{pool: p, conn: conn}
	x.stop = context.AfterFunc(ctx, conn.expire)
	res, err := x.run(req, trip)
	if err != nil {
		x.abandon()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return res, nil
}

// exchange is one request and its answer. It has its connection to itself, and reads it through a
// buffer of its own, so that it knows of every byte whether it belongs to the answer.
type exchange struct {
	pool *pool
	conn *Conn
	stop func() bool // keeps the end of the context from reaching the connection

	in   *bufio.Reader
	out  *bufio.Writer
	left int64 // how much may still be read

	writing chan error // gets the result of a request that is written meanwhile; nil: wrote has it
	wrote   error      // what became of writing the request
	again   bool       // the answer leaves the connection fit for another
	over    atomic.Bool
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
)

// run sends the request and reads the head of its answer.
func (x *exchange) run(req *http.Request, trip *Trip) (*http.Response, error) {
	if !trip.Reused { // the pool looked at one that is
		if err := x.conn.glance(); err != nil {
			return nil, err
		}
	}
	x.in, x.out = readers.Get().(*bufio.Reader), writers.Get().(*bufio.Writer)
	x.in.Reset(x)
	x.out.Reset(x.conn)
	if req.ContentLength <= writeInline {
		x.wrote = x.write(req)
	} else {
		x.writing = make(chan error, 1)
		go func() { x.writing <- x.write(req) }()
	}
	res, err := x.head(req, trip)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && x.written() && x.wrote != nil {
			err = x.wrote // there were no last words
		}
		return nil, err
	}
	x.again = fitForAnother(res)
	if res.Body == http.NoBody {
		x.finish()
	} else {
		res.Body = &body{exchange: x, src: res.Body}
	}
	return res, nil
}

// write sends the request. A failure does not end the exchange: a receiver may well answer and
// hang up without having read it all, and its answer says more than that it hung up.
func (x *exchange) write(req *http.Request) error {
	err := req.Write(x.out)
	if err == nil {
		err = x.out.Flush()
	}
	if err != nil {
		_ = x.conn.socket.SetReadDeadline(time.Now().Add(lastWords))
	}
	return err
}

// head reads answers until one is final. The limit is for all of them together, or a stream of
// interim ones would never end.
func (x *exchange) head(req *http.Request, trip *Trip) (*http.Response, error) {
	x.left = maxResponseHeader
	if _, err := x.in.Peek(1); err != nil {
		return nil, err
	}
	trip.FirstByte = time.Now()
	for {
		res, err := http.ReadResponse(x.in, req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			x.left = math.MaxInt64
			return res, nil
		}
	}
}

// Read is the buffer's source.
func (x *exchange) Read(p []byte) (int, error) {
	if x.left <= 0 {
		return 0, fmt.Errorf("the answer's header is longer than %d bytes", maxResponseHeader)
	}
	n, err := x.conn.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	return n, err
}

// fitForAnother reports whether another answer can follow this one. One that announces a body
// where there is none by definition is often followed by that body, a moment later.
func fitForAnother(res *http.Response) bool {
	switch {
	case res.Close || res.StatusCode < 200:
		return false
	case res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified:
		length := res.Header.Get("Content-Length")
		return len(res.TransferEncoding) == 0 && (length == "" || length == "0")
	}
	return true
}

// finish ends an exchange whose answer was read to its end. The connection is kept only if the
// request went out whole and not a byte has come beyond the answer: who sends more than was asked
// for would have it taken for the answer to the next request. What arrives later is found before
// that one is sent.
func (x *exchange) finish() {
	if !x.over.CompareAndSwap(false, true) {
		return
	}
	inTime := x.stop()
	whole := x.written() && x.wrote == nil
	if !inTime || !whole || !x.again || x.in.Buffered() > 0 {
		x.hangUp()
		return
	}
	x.in.Reset(nil)
	x.out.Reset(nil)
	readers.Put(x.in)
	writers.Put(x.out)
	x.pool.put(x.conn)
}

// abandon ends an exchange wherever it is. Its buffers are not used again: another goroutine may
// be reading through them.
func (x *exchange) abandon() {
	if x.over.CompareAndSwap(false, true) {
		x.stop()
		x.hangUp()
	}
}

// hangUp closes the connection and waits until nobody reads the request any more.
func (x *exchange) hangUp() {
	x.conn.cut()
	if x.writing != nil {
		<-x.writing
	}
}

// written reports whether writing the request is over. It does not wait: a receiver that answered
// without reading may never read.
func (x *exchange) written() bool {
	if x.writing == nil {
		return true
	}
	select {
	case x.wrote = <-x.writing:
		x.writing = nil
		return true
	default:
		return false
	}
}

// body is the body of an answer. Reading it to its end, or closing it, ends the exchange.
type body struct {
	exchange *exchange
	src      io.Reader
	err      error // of the read that ended it
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	if err != nil {
		b.err = err
		if err == io.EOF {
			b.exchange.finish()
		} else {
			b.exchange.abandon()
		}
	}
	return n, err
}

// Close may be called while another goroutine reads, and ends that.
func (b *body) Close() error {
	b.exchange.abandon()
	return nil
}
