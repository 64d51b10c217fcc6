package client

import "time"

// Stats is what happened in a span of time, step by step.
type Stats struct {
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	BucketSeconds int       `json:"bucket_seconds"`
	Totals        Figures   `json:"totals"`
	Data          []Bucket  `json:"data"`
}

// Bucket is one step.
type Bucket struct {
	At time.Time `json:"at"`
	Figures
}

// Figures are counts, and what follows from them.
type Figures struct {
	Published int64 `json:"published"`
	Unmatched int64 `json:"unmatched"`
	Delivered int64 `json:"delivered"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Planned   int64 `json:"planned"`
	Attempts  struct {
		Total     int64 `json:"total"`
		Delivered int64 `json:"delivered"`
		Transient int64 `json:"transient"`
		Permanent int64 `json:"permanent"`
	} `json:"attempts"`
	SuccessRate    *float64  `json:"success_rate"`
	DeliveryMS     Quantiles `json:"delivery_ms"`
	FirstAttemptMS Quantiles `json:"first_attempt_ms"`
	AttemptMS      Quantiles `json:"attempt_ms"`
}

// Quantiles are what half, 95 and 99 of a hundred did not exceed; nil if there were none.
type Quantiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// Overview is how everything stands.
type Overview struct {
	At              time.Time  `json:"at"`
	Dispatch        Dispatch   `json:"dispatch"`
	Pending         int64      `json:"pending"`
	Dead            int64      `json:"dead"`
	OldestPendingAt *time.Time `json:"oldest_pending_at"`
	OldestRunnable  float64    `json:"oldest_runnable_ms"`
	Hurting         []Hurting  `json:"hurting"`
	OpenBreakers    int        `json:"open_breakers"`
	Capped          bool       `json:"open_breakers_capped"`
	Waiting         []WaitsFor `json:"waiting"`
	Storage         Storage    `json:"storage"`
}

// Storage is how much is kept, and since when.
type Storage struct {
	Bytes    int64      `json:"bytes"`
	OldestAt *time.Time `json:"oldest_at"` // nil: nothing is kept
}

// Hurting is an endpoint that fails.
type Hurting struct {
	EndpointID string   `json:"endpoint_id"`
	Tenant     string   `json:"tenant"`
	TenantName string   `json:"tenant_name"`
	URL        string   `json:"url"`
	State      string   `json:"state"`
	Health     Health   `json:"health"`
	LastHour   Figures  `json:"last_hour"`
	Day        []Bucket `json:"day"`
}

// WaitsFor is what one reason holds back.
type WaitsFor struct {
	Reason    string     `json:"reason"`
	Pending   int        `json:"pending"`
	Capped    bool       `json:"pending_capped"`
	Endpoints int        `json:"endpoints"`
	OldestAt  *time.Time `json:"oldest_at"`
}

// Nodes is who works on what.
type Nodes struct {
	Data      []Node `json:"data"`
	Shards    []*int `json:"shards"`
	Ownerless int    `json:"ownerless"`
}

// Node is one process that sends.
type Node struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Version     string     `json:"version"`
	Draining    bool       `json:"draining"`
	SeenAt      *time.Time `json:"seen_at"`
	Silent      bool       `json:"silent"`
	Shards      int        `json:"shards"`
	InFlight    int        `json:"in_flight"`
	MaxInFlight int        `json:"max_in_flight"`
	PerSecond   float64    `json:"attempts_per_second"`
}

// Found is one thing that a search found.
type Found struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Title  string `json:"title"`
	By     string `json:"by"`
}

// Search is what a search found.
type Search struct {
	Data []Found `json:"data"`
	More bool    `json:"more"`
}

// SeenAttempt is an attempt as a stream of them shows it.
type SeenAttempt struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant"`
	DeliveryID string    `json:"delivery_id"`
	EventType  string    `json:"event_type"`
	URL        string    `json:"url"`
	N          int       `json:"n"`
	At         time.Time `json:"at"`
	DurationMS float64   `json:"duration_ms"`
	Outcome    string    `json:"outcome"`
	Kind       string    `json:"kind"`
	Message    string    `json:"message"`
	StatusCode int       `json:"status_code"`
}

// Preview is a request as it would be sent.
type Preview struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
}
