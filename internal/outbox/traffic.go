package outbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

// Traffic is what happened within a span of time, for people to look at. It is counted in memory
// and written down every few seconds, beside the way of an event and never on it: a process that
// is killed takes the last seconds of its figures with it. What must balance is in the ledger.
type Traffic struct {
	At       time.Time  // where the span begins
	Tenant   TenantID   // 0: all tenants
	Endpoint EndpointID // zero: all endpoints
	Counts
}

// Recorded is a result that is in the database now, with what can be shown of it.
type Recorded struct {
	Result
	TenantKey string    // "" where the tenant is gone
	Published time.Time // when the event was accepted; zero where it is not known
}

// Counts are figures that add up.
type Counts struct {
	Published int64 // events routed
	Unmatched int64 // of these, those that no endpoint wanted
	Planned   int64 // deliveries made of them

	Delivered int64 // deliveries that ended well
	Failed    int64 // deliveries that ended dead
	Cancelled int64

	Succeeded int64 // attempts, by outcome
	Transient int64
	Permanent int64

	Answer  Latencies // of an attempt: from its start to its end
	First   Latencies // from publishing to the start of the first attempt
	Arrived Latencies // from publishing to delivered; replays do not count
}

// Attempts is how many attempts ended.
func (c *Counts) Attempts() int64 { return c.Succeeded + c.Transient + c.Permanent }

// SuccessRate is the part of the attempts that were answered with a 2xx; false if there were none.
func (c *Counts) SuccessRate() (float64, bool) {
	if c.Attempts() == 0 {
		return 0, false
	}
	return float64(c.Succeeded) / float64(c.Attempts()), true
}

// Add adds other to c.
func (c *Counts) Add(other *Counts) {
	for _, pair := range [][2]*int64{
		{&c.Published, &other.Published}, {&c.Unmatched, &other.Unmatched}, {&c.Planned, &other.Planned},
		{&c.Delivered, &other.Delivered}, {&c.Failed, &other.Failed}, {&c.Cancelled, &other.Cancelled},
		{&c.Succeeded, &other.Succeeded}, {&c.Transient, &other.Transient}, {&c.Permanent, &other.Permanent},
	} {
		*pair[0] += *pair[1]
	}
	c.Answer.Merge(other.Answer)
	c.First.Merge(other.First)
	c.Arrived.Merge(other.Arrived)
}

// Latencies counts lengths of time in steps of 8 %, from 0.1 ms on: step n holds what is longer
// than 0.1 ms · 1.08ⁿ⁻¹ and at most 0.1 ms · 1.08ⁿ. The zero value is empty.
type Latencies struct {
	counts map[uint16]int64
}

const (
	latencyLeast = 100 * time.Microsecond
	latencyStep  = 1.08
	// latencySteps reach 44 days, longer than anything pending lives.
	latencySteps = 320
)

// Observe counts one; less than nothing, where clocks disagree, counts as nothing.
func (l *Latencies) Observe(d time.Duration) {
	step := 0
	if d > latencyLeast {
		step = int(math.Ceil(math.Log(float64(d)/float64(latencyLeast)) / math.Log(latencyStep)))
	}
	l.add(uint16(min(step, latencySteps)), 1)
}

func (l *Latencies) add(step uint16, n int64) {
	if l.counts == nil {
		l.counts = map[uint16]int64{}
	}
	l.counts[step] += n
}

// Merge adds other's to l.
func (l *Latencies) Merge(other Latencies) {
	for step, n := range other.counts {
		l.add(step, n)
	}
}

// Quantile returns the upper end of the step that holds the q-th part; false if nothing was
// counted.
func (l Latencies) Quantile(q float64) (time.Duration, bool) {
	var total int64
	for _, n := range l.counts {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	want, seen := int64(math.Ceil(q*float64(total))), int64(0)
	for _, step := range l.steps() {
		if seen += l.counts[step]; seen >= max(want, 1) {
			return time.Duration(float64(latencyLeast) * math.Pow(latencyStep, float64(step))), true
		}
	}
	return 0, false
}

func (l Latencies) steps() []uint16 {
	steps := make([]uint16, 0, len(l.counts))
	for step := range l.counts {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	return steps
}

// Pack writes the counts for a store: pairs of step and count, each an unsigned varint. It is nil
// where nothing was counted.
func (l Latencies) Pack() []byte {
	var packed []byte
	for _, step := range l.steps() {
		packed = binary.AppendUvarint(packed, uint64(step))
		packed = binary.AppendUvarint(packed, uint64(l.counts[step]))
	}
	return packed
}

// Unpack reads what Pack wrote, adding to l.
func (l *Latencies) Unpack(packed []byte) error {
	for len(packed) > 0 {
		step, n := binary.Uvarint(packed)
		count, m := uint64(0), 0
		if n > 0 {
			count, m = binary.Uvarint(packed[n:])
		}
		if n <= 0 || m <= 0 || step > latencySteps || count > math.MaxInt64 {
			return errors.New("latencies are stored incompletely")
		}
		l.add(uint16(step), int64(count))
		packed = packed[n+m:]
	}
	return nil
}

// TrafficSpan is how long a time a stored row is about.
type TrafficSpan int16

const (
	TrafficFresh  TrafficSpan = 0 // a few seconds of one node, not folded yet
	TrafficMinute TrafficSpan = 1
	TrafficHour   TrafficSpan = 2
)

// When rows are folded, and how many one transaction folds.
const (
	TrafficFreshFor  = 2 * time.Minute
	TrafficMinuteFor = 48 * time.Hour
	TrafficFoldBatch = 2_000
)

// MaxTrafficRows is how many rows one question about traffic reads at most.
const MaxTrafficRows = 50_000

// TrafficQuery asks for the figures of [From, To).
type TrafficQuery struct {
	Tenant   TenantRef  // zero: of all tenants
	Endpoint EndpointID // zero: of all the tenant's endpoints
	From, To time.Time
}

// Figures keeps what happened, for people.
type Figures interface {
	// AddTraffic appends rows. Each is counted once for a nil error; a call that failed is not
	// repeated, since nobody is owed these figures.
	AddTraffic(ctx context.Context, rows []Traffic) error
	// TrafficOf returns the rows within the query's time, in order of At, at most MaxTrafficRows:
	// of several that are about the same time, each. Rows older than two days are about an hour.
	TrafficOf(ctx context.Context, q TrafficQuery) ([]Traffic, error)
	// FailingEndpoints returns, for the endpoints with failed attempts since then, the sums of
	// those rows, most failures first.
	FailingEndpoints(ctx context.Context, since time.Time, limit int) ([]Traffic, error)
}

// FoldTraffic adds up rows of the same scope whose At is the same once cut to unit.
func FoldTraffic(rows []Traffic, unit time.Duration) []Traffic {
	type scope struct {
		at       int64
		tenant   TenantID
		endpoint EndpointID
	}
	index := map[scope]int{}
	var folded []Traffic
	for i := range rows {
		at := rows[i].At.Truncate(unit)
		key := scope{at.UnixMicro(), rows[i].Tenant, rows[i].Endpoint}
		n, known := index[key]
		if !known {
			n = len(folded)
			index[key] = n
			folded = append(folded, Traffic{At: at, Tenant: rows[i].Tenant, Endpoint: rows[i].Endpoint})
		}
		folded[n].Add(&rows[i].Counts)
	}
	slices.SortFunc(folded, func(a, b Traffic) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Tenant, b.Tenant), bytes.Compare(a.Endpoint[:], b.Endpoint[:]))
	})
	return folded
}
