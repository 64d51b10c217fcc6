package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"
)

// caller posts over one connection of its own, without the goroutines and hand-overs of an
// http.Client: on the two cores that all processes of a run share, what the publisher costs is
// missing to the server that is measured.
type caller struct {
	host string
	conn net.Conn
	read *bufio.Reader
	head []byte
}

// field is one line of a request's header.
type field struct{ name, value string }

func newCaller(base string) (*caller, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	return &caller{host: u.Host}, nil
}

// post sends a JSON body and wants any 2xx. After an error the next call connects again.
func (c *caller) post(ctx context.Context, path string, header []field, body []byte) (err error) {
	if c.conn == nil {
		var d net.Dialer
		if c.conn, err = d.DialContext(ctx, "tcp", c.host); err != nil {
			return err
		}
		c.read = bufio.NewReader(c.conn)
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	c.head = append(c.head[:0], "POST "...)
	c.head = append(c.head, path...)
	c.head = append(c.head, " HTTP/1.1\r\nHost: "...)
	c.head = append(c.head, c.host...)
	for _, line := range header {
		c.head = append(c.head, "\r\n"...)
		c.head = append(c.head, line.name...)
		c.head = append(c.head, ": "...)
		c.head = append(c.head, line.value...)
	}
	c.head = append(c.head, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.head = strconv.AppendInt(c.head, int64(len(body)), 10)
	c.head = append(c.head, "\r\n\r\n"...)
	request := net.Buffers{c.head, body}
	if _, err := request.WriteTo(c.conn); err != nil {
		return err
	}
	return c.answer(path)
}

// answer reads an answer of known length, as all of the server's to these requests are.
func (c *caller) answer(path string) error {
	status, err := c.line()
	if err != nil {
		return err
	}
	_, code, _ := bytes.Cut(status, []byte(" "))
	accepted, said := len(code) > 0 && code[0] == '2', string(code)
	length := 0
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		if value, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if accepted {
		_, err = c.read.Discard(length)
		return err
	}
	body := make([]byte, min(length, 200))
	if _, err := io.ReadFull(c.read, body); err != nil {
		return err
	}
	// Where there is more of it, the connection goes with the error.
	return fmt.Errorf("%s: %s: %s", path, said, body)
}

func (c *caller) line() ([]byte, error) {
	line, err := c.read.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
