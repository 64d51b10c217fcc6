// Package client speaks Waybill's HTTP API for the command line: one request, one typed answer
// or one sentence about what went wrong.
//
// It does not retry. A person, or the script around the command, sees what happened and
// decides.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/version"
)

// Config says which server, and as whom.
type Config struct {
	URL string // base, such as http://127.0.0.1:8420; a path is kept
	Key string // API key
	// Timeout of one request; 0: 30 s.
	Timeout time.Duration
	// Transport carries the requests; nil: the network.
	Transport http.RoundTripper
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// maxAnswer bounds an answer; the largest honest one is a page of 250 rows with long URLs.
const maxAnswer = 64 << 20

// New checks the configuration; it does not connect.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server; write it like http://127.0.0.1:8420", cfg.URL)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return &Client{base: base, key: cfg.Key, http: &http.Client{
		Timeout:   cfg.Timeout,
		Transport: cfg.Transport,
		// A redirect would send the key to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Request is one call.
type Request struct {
	Method string // "": GET
	// Path is made with Path, so that names in it are escaped.
	Path  string
	Query url.Values
	// Body is JSON, sent as it is; nil for none.
	Body []byte
	// IdempotencyKey makes a POST safe to send again; "" for none.
	IdempotencyKey string
	// Lenient asks the server to pass over fields it does not know, so that a newer client can
	// publish to an older server.
	Lenient bool
}

// Path joins the parts of a path, escaping each: Path("v1", "tenants", key).
func Path(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}

// Do sends the request and returns the body of a 2xx answer. Any other answer is an *Error, no
// answer an *Unreachable.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &Unreachable{URL: c.base.String(), cause: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &Unreachable{URL: c.base.String(), cause: err}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, readError(resp, body)
	}
	return body, nil
}

// request makes the HTTP request.
func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	u := *c.base
	u.Path += unescaped(r.Path)
	u.RawPath = c.base.EscapedPath() + r.Path
	u.RawQuery = r.Query.Encode()
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	if r.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", r.IdempotencyKey)
	}
	if r.Lenient {
		req.Header.Set("Prefer", "handling=lenient")
	}
	req.Header.Set("User-Agent", "waybill-cli/"+version.String())
	return req, nil
}

func unescaped(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return path // Path never makes such a one
	}
	return plain
}

// Call is Do with the answer read into T. The bytes come along for those who print them.
func Call[T any](ctx context.Context, c *Client, r Request) (T, []byte, error) {
	var value T
	body, err := c.Do(ctx, r)
	if err != nil {
		return value, nil, err
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return value, nil, &Unreachable{URL: c.base.String(), cause: errors.New("its answer is not that of a Waybill server")}
	}
	return value, body, nil
}

// Unreachable says that no answer came.
type Unreachable struct {
	URL   string
	cause error
}

func (e *Unreachable) Error() string {
	why := e.cause.Error()
	var timeout net.Error
	switch {
	case errors.As(e.cause, &timeout) && timeout.Timeout():
		why = "it did not answer in time"
	case strings.Contains(why, "connection refused"):
		why = "nothing listens there; is the server running?"
	default:
		if urlErr, ok := errors.AsType[*url.Error](e.cause); ok {
			why = urlErr.Err.Error()
		}
	}
	return fmt.Sprintf("cannot reach %s: %s", e.URL, why)
}

func (e *Unreachable) Unwrap() error { return e.cause }

// Error is an answer that is not 2xx.
type Error struct {
	Status    int    `json:"status"`
	Code      string `json:"code"` // of the API's list; "" where the answer was not the API's
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Items     []Item `json:"errors"`
}

// Item is one fault of a request.
type Item struct {
	Index  *int   `json:"index"` // in a batch
	Path   string `json:"path"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func readError(resp *http.Response, body []byte) error {
	e := &Error{}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/problem+json" || json.Unmarshal(body, e) != nil {
		e = &Error{Detail: "the answer is not that of a Waybill server"}
	}
	e.Status = resp.StatusCode
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	what := e.Detail
	if what == "" {
		what = e.Title
	}
	if what == "" {
		what = http.StatusText(e.Status)
	}
	fmt.Fprintf(&b, "the server answered %d", e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", e.Code)
	}
	fmt.Fprintf(&b, ": %s", what)
	for _, item := range e.Items {
		if strings.Contains(what, item.Detail) {
			continue // a single fault is the whole detail
		}
		b.WriteString("; ")
		if item.Index != nil {
			fmt.Fprintf(&b, "item %d ", *item.Index)
		}
		if item.Path != "" {
			fmt.Fprintf(&b, "%s: ", item.Path)
		}
		b.WriteString(item.Detail)
	}
	return b.String()
}
