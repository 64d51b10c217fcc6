package egress

import (
	"errors"
	"net/http"
	"time"
)

// Client is the guard as an http.Client, for the few addresses that are fetched and not delivered
// to, such as the certificate a request names. It follows no redirects.
func (g *Guard) Client() *http.Client {
	return &http.Client{
		Transport:     fetching{g},
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// fetching makes requests of public addresses.
type fetching struct{ guard *Guard }

// RoundTrip implements http.RoundTripper.
func (f fetching) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		return nil, errors.New("egress: only what has no body is fetched")
	}
	u, err := f.guard.ParseURL(req.URL.String(), false)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL, out.Host = u, u.Host
	var trip Trip
	return f.guard.RoundTrip(out, Peer{}, &trip)
}
