package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// StreamEvent is one of a stream of Server-Sent Events.
type StreamEvent struct {
	Kind string
	Data []byte
}

// longestEvent is an event with the largest payload there is, in base64.
const longestEvent = 4 << 20

// silence is how long a stream may say nothing, not even that it is still there.
const silence = 45 * time.Second

// place is where a stream has come to.
type place struct {
	id     string // of the last event; "" at first
	opened bool   // the server has answered
}

// Follow reads a stream for as long as ctx lasts, going on where it was cut. It returns an error
// if the first answer is a refusal or none, if handle returns one, or if the server refuses later:
// a key that was deleted does not come back. away is told when the stream is cut, and (nil) when
// it goes on; it may be nil.
func (c *Client) Follow(ctx context.Context, r Request, handle func(StreamEvent) error, away func(error)) error {
	var at place
	cut := false
	if away == nil {
		away = func(error) {}
	}
	for {
		err := c.stream(ctx, r, &at, handle, func() {
			if cut {
				away(nil)
			}
			cut = false
		})
		refused, isRefusal := errors.AsType[*Error](err)
		handled, isHandled := errors.AsType[*handlerError](err)
		switch {
		case ctx.Err() != nil:
			return nil
		case isHandled:
			return handled.err
		case !at.opened, isRefusal && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return err
		}
		if !cut {
			away(err)
		}
		cut = true
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// handlerError is an error of the caller's own.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

// stream reads until the connection ends.
func (c *Client) stream(ctx context.Context, r Request, at *place, handle func(StreamEvent) error, opened func()) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(reading, r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if at.id != "" {
		req.Header.Set("Last-Event-ID", at.id)
	}
	patient := *c.http
	patient.Timeout = 0 // it is bounded by what it says, not by its length
	alarm := time.AfterFunc(silence, cancel)
	defer alarm.Stop()
	resp, err := patient.Do(req)
	if err != nil {
		return &Unreachable{URL: c.base.String(), cause: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return &Unreachable{URL: c.base.String(), cause: err}
		}
		return readError(resp, body)
	}
	at.opened = true
	opened()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, longestEvent)
	var e StreamEvent
	for lines.Scan() {
		alarm.Reset(silence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if e.Data != nil {
				if err := handle(e); err != nil {
					return &handlerError{err}
				}
			}
			e = StreamEvent{}
		case name == "event":
			e.Kind = value
		case name == "id":
			at.id = value
		case name == "data":
			e.Data = append(e.Data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return &Unreachable{URL: c.base.String(), cause: err}
	}
	return &Unreachable{URL: c.base.String(), cause: errors.New("the stream ended")}
}
