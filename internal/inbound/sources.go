package inbound

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive"
)

// compiled is a source made ready for requests.
type compiled struct {
	outbox.Source
	receiving receive.Source
	provider  receive.Provider
	intake    *receive.Intake
	codes     receive.Codes
	forward   []string // canonical header names
	broken    error
}

// compile makes a source ready. One that cannot be used says so to each request.
func compile(src outbox.Source, client *http.Client) *compiled {
	c := &compiled{Source: src, codes: receive.Codes{OK: http.StatusOK, Failed: http.StatusServiceUnavailable}}
	rs, err := receiving(&src, client)
	if err != nil {
		c.broken = err
		return c
	}
	c.receiving, c.provider = rs, rs.Provider
	if len(rs.Secrets) == 0 || !slices.ContainsFunc(src.Secrets, func(s outbox.SourceSecret) bool { return s.Live(time.Now()) }) {
		// Nothing verifies without a secret, which is a refusal like any other and no defect.
		rs.Secrets, rs.SecretsFunc = nil, func(context.Context) ([]receive.Secret, error) { return nil, nil }
	}
	c.intake, c.broken = receive.NewIntake(rs)
	if c.broken != nil {
		return c
	}
	c.codes = c.intake.Codes()
	c.forward = forwarded(&src, &rs.Provider)
	return c
}

// forwarded are the headers that go on with an event: its content type always, and those asked for,
// or by default those the provider tells its events apart by.
func forwarded(src *outbox.Source, p *receive.Provider) []string {
	names := []string{"Content-Type"}
	if src.Settings.ForwardHeaders != nil {
		names = append(names, src.Settings.ForwardHeaders...)
	} else {
		for _, place := range []receive.Lookup{p.ID, p.Topic} {
			if place.Header != "" {
				names = append(names, place.Header)
			}
		}
	}
	for i := range names {
		names[i] = http.CanonicalHeaderKey(names[i])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sources spares each request a look-up. What it holds is a second old at most, or of before the
// database went away: then it knows at least with which code a provider is sent away.
type sources struct {
	store  Store
	client *http.Client
	loads  singleflight.Group

	mu    sync.Mutex
	known map[string]cached
	edits int // counts forget, so that a read begun before one is not kept after it
}

type cached struct {
	*compiled // nil: there is none of this name
	at        time.Time
}

const (
	cacheAge   = time.Second
	cacheSize  = 10_000
	lookBudget = time.Second
)

func newSources(store Store, client *http.Client) *sources {
	return &sources{store: store, client: client, known: map[string]cached{}}
}

func (s *sources) get(ctx context.Context, name string) (*compiled, error) {
	if !outbox.ValidSourceName(name) {
		return nil, outbox.ErrNotFound
	}
	s.mu.Lock()
	known, found := s.known[name]
	edits := s.edits
	s.mu.Unlock()
	if !found || time.Since(known.at) >= cacheAge {
		began := time.Now()
		loaded := s.loads.DoChan(name, func() (any, error) { return s.load(name, began, edits) })
		select {
		case result := <-loaded:
			switch {
			case result.Err == nil:
				known = result.Val.(cached)
			case !found:
				return nil, result.Err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if known.compiled == nil {
		return nil, outbox.ErrNotFound
	}
	return known.compiled, nil
}

// load reads a source for all who ask at the moment.
func (s *sources) load(name string, began time.Time, edits int) (cached, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookBudget)
	defer cancel()
	src, err := s.store.Source(ctx, name)
	entry := cached{at: began}
	switch {
	case err == nil:
		entry.compiled = compile(src, s.client)
	case !errors.Is(err, outbox.ErrNotFound):
		return cached{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.edits == edits {
		if len(s.known) >= cacheSize {
			clear(s.known) // strangers can ask for any name
		}
		s.known[name] = entry
	}
	return entry, nil
}

func (s *sources) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.edits++
	delete(s.known, name)
	s.loads.Forget(name)
}
