package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
	resp, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %.200s", path, resp.Status, answer)
	}
	return err
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
