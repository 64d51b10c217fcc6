package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// sink is the customers' servers: it reads every request, answers as its path says, and keeps
// count by group.
//
//	/hook/{group}/…     200 at once
//	/hang/{group}/…     200 after ten seconds
//	/limited/{group}/…  200, and 429 beyond 50 requests a second
type sink struct {
	mu     sync.Mutex
	groups map[string]*group
}

// group is what the sink knows of the requests under one path.
type group struct {
	requests int64
	tooMany  int64
	seen     map[int64]struct{}
	latency  histogram
	tokens   float64
	filled   time.Time
}

const (
	hangFor   = 10 * time.Second
	limitedTo = 50 // requests a second
)

// sinkStats is what the sink tells of a group.
type sinkStats struct {
	Requests int64   `json:"requests"`
	TooMany  int64   `json:"too_many"` // answered 429
	Distinct int64   `json:"distinct"` // events that were answered 200
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

// runSink serves until ctx ends. It prints its address on a line of its own.
func runSink(ctx context.Context) error {
	s := &sink{groups: map[string]*group{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{behaviour}/{group}/", s.receive)
	mux.HandleFunc("GET /stats/{group}", s.stats)
	mux.HandleFunc("POST /reset", s.reset)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

var bodies = sync.Pool{New: func() any { return new([2 * Size]byte) }}

func (s *sink) receive(w http.ResponseWriter, r *http.Request) {
	buf := bodies.Get().(*[2 * Size]byte)
	defer bodies.Put(buf)
	length, err := io.ReadFull(r.Body, buf[:])
	if err != io.ErrUnexpectedEOF {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	n, at, ok := readPayload(buf[:length])
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	behaviour := r.PathValue("behaviour")
	if behaviour == "hang" {
		select {
		case <-time.After(hangFor):
		case <-r.Context().Done():
			return
		}
	}
	w.WriteHeader(s.count(r.PathValue("group"), behaviour == "limited", n, at, time.Now()))
}

// count notes a request and returns its answer's status.
func (s *sink) count(name string, limited bool, n int64, at, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(name)
	g.requests++
	if limited {
		g.tokens = min(g.tokens+limitedTo*now.Sub(g.filled).Seconds(), limitedTo/10)
		g.filled = now
		if g.tokens < 1 {
			g.tooMany++
			return http.StatusTooManyRequests
		}
		g.tokens--
	}
	if _, again := g.seen[n]; !again {
		g.seen[n] = struct{}{}
		g.latency.add(now.Sub(at))
	}
	return http.StatusOK
}

func (s *sink) group(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{seen: map[int64]struct{}{}, filled: time.Now()}
		s.groups[name] = g
	}
	return g
}

func (s *sink) stats(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(r.PathValue("group"))
	json.NewEncoder(w).Encode(sinkStats{
		Requests: g.requests,
		TooMany:  g.tooMany,
		Distinct: int64(len(g.seen)),
		P50:      milliseconds(g.latency.quantile(0.50)),
		P99:      milliseconds(g.latency.quantile(0.99)),
	})
}

func (s *sink) reset(http.ResponseWriter, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.groups)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
