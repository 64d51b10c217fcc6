package dispatch

import (
	"bytes"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// work is a delivery in memory: ready, in flight, or waiting for its result to be recorded.
type work struct {
	due      outbox.Due
	endpoint *endpointQueue
	estimate time.Duration   // what it was charged when it started
	started  time.Time       // monotonic
	target   *target         // the configuration it was started with; nil: the endpoint is deleted
	tenure   context.Context // ends with the lease it was chosen under
	over     bool            // its attempt has ended, its result is being recorded
	held     bool            // another node's attempt, see hold
	until    time.Time       // monotonic: when a held one is over at the latest
	began    time.Time       // of a held one: when it began at the earliest, database time
	probe    bool            // sent to see whether the server is back
	careful  bool            // written down as a suspect before it is attempted
	unsent   bool            // waits for that
	fresh    bool            // did not join its lane's line, see freshAfter
	given    bool            // its shard was given up while it waited: it must not be attempted
}

func (w *work) bytes() int64 { return int64(len(w.due.Payload)) + 512 }

// position is a place in an endpoint's pending rows, ordered by next_at, then id.
type position struct {
	at time.Time
	id outbox.DeliveryID
}

// fromTheStart is before every row. (The zero time means that nothing waits.)
var fromTheStart = position{at: time.Unix(0, 0)}

func positionOf(d *outbox.Delivery) position { return position{d.NextAt, d.ID} }

func (p position) before(q position) bool {
	if !p.at.Equal(q.at) {
		return p.at.Before(q.at)
	}
	return bytes.Compare(p.id[:], q.id[:]) < 0
}

// lane is one endpoint's live deliveries, or its replays: the few that are in memory, and how far
// the rows in the database have been read.
type lane struct {
	endpoint *endpointQueue
	kind     outbox.Lane
	ready    []*work
	fresh    []*work // handed over while a long line waits, see freshAfter
	passed   bool    // the last one chosen was a fresh one
	inMemory int     // ready, fresh, in flight or unrecorded
	inFlight int

	// Rows at or before cursor were taken into memory, or were written since and are known
	// to be there. It is lowered whenever a row is written behind it.
	cursor position
	// wakeAt is when there may be something to read: the smallest next_at known to wait beyond
	// what is in memory. Zero: nothing.
	wakeAt time.Time
	// reading is set while a fetch is out. Its answer is as old as its snapshot: what was lowered
	// meanwhile is applied after it, and what left memory meanwhile (it ended, or waits for a
	// later time) is passed over, or it would be sent once more.
	reading bool
	lowered position // zero: nothing
	left    map[outbox.DeliveryID]struct{}
	readAt  time.Time // wakeAt, or the breaker's next probe if that is later
	pos     int       // in the wake heap, −1 while not there
}

// waiting is how many could be sent at once.
func (l *lane) waiting() int { return len(l.ready) + len(l.fresh) }

// oldest is the one in memory that has been due longest. There is one.
func (l *lane) oldest() *work {
	if len(l.ready) == 0 {
		return l.fresh[0]
	}
	return l.ready[0]
}

// choose takes the next one out: by place, and every second time a fresh one. There is one.
func (l *lane) choose() *work {
	from := &l.ready
	if len(l.ready) == 0 || len(l.fresh) > 0 && !l.passed {
		from = &l.fresh
	}
	l.passed = from == &l.fresh
	w := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	return w
}

// behind reports whether a live delivery that is due at the given time would wait in a long line.
func (l *lane) behind(at time.Time) bool {
	return len(l.ready) > 0 && at.Sub(l.ready[0].due.NextAt) >= freshAfter
}

// remove takes one that was not chosen out, and reports whether it was there.
func (l *lane) remove(w *work) bool {
	for _, from := range []*[]*work{&l.ready, &l.fresh} {
		if i := slices.Index(*from, w); i >= 0 {
			*from = append((*from)[:i:i], (*from)[i+1:]...)
			return true
		}
	}
	return false
}

// lower notes that a row at p waits in the database.
func (l *lane) lower(p position) {
	if l.wakeAt.IsZero() || p.at.Before(l.wakeAt) {
		l.wakeAt = p.at
	}
	if l.reading {
		if l.lowered.at.IsZero() || p.before(l.lowered) {
			l.lowered = p
		}
		return
	}
	if !l.cursor.before(p) {
		l.cursor = before(p)
	}
}

// leave notes that a delivery left memory.
func (l *lane) leave(id outbox.DeliveryID) {
	if !l.reading {
		return
	}
	if l.left == nil {
		l.left = map[outbox.DeliveryID]struct{}{}
	}
	l.left[id] = struct{}{}
}

// before returns a position just before p: every row at p.at is read again, and those that are in
// memory are passed over.
func before(p position) position { return position{at: p.at.Add(-time.Microsecond)} }

// wakeHeap orders lanes by when they are to be read.
type wakeHeap []*lane

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].readAt.Before(h[j].readAt) }
func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *wakeHeap) Push(x any) {
	l := x.(*lane)
	l.pos = len(*h)
	*h = append(*h, l)
}

func (h *wakeHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.pos = -1
	return l
}

// gateHeap orders endpoints by when their rate lets them go on.
type gateHeap []*endpointQueue

// set puts an endpoint in at its opensAt, or takes it out, and reports whether it is the next to
// open now.
func (h *gateHeap) set(e *endpointQueue, in bool) (first bool) {
	switch {
	case in && e.gatePos >= 0:
		heap.Fix(h, e.gatePos)
	case in:
		heap.Push(h, e)
	case e.gatePos >= 0:
		heap.Remove(h, e.gatePos)
	}
	return e.gatePos == 0
}

func (h gateHeap) Len() int           { return len(h) }
func (h gateHeap) Less(i, j int) bool { return h[i].opensAt.Before(h[j].opensAt) }
func (h gateHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].gatePos, h[j].gatePos = i, j
}

func (h *gateHeap) Push(x any) {
	e := x.(*endpointQueue)
	e.gatePos = len(*h)
	*h = append(*h, e)
}

func (h *gateHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.gatePos = -1
	return e
}
