package dispatch

import "container/heap"

// entrant is something that waits for its turn in a fair queue.
type entrant struct {
	// virtual is the entrant's virtual time in seconds: the worker time it was charged, divided
	// by its weight. The smallest goes first.
	virtual float64
	// seq breaks ties in order of entry.
	seq uint64
	// pos is the position in the heap, −1 while not waiting.
	pos int
}

func (e *entrant) entry() *entrant { return e }

type entry interface{ entry() *entrant }

// fairQueue is a start-time fair queue: it yields the waiting entrant with the smallest virtual
// time, in O(log n). An entrant that was idle comes back at the queue's current virtual time, so
// it can neither save up turns nor owe any.
type fairQueue[E entry] struct {
	waiting fairHeap[E]
	now     float64 // virtual time of the last entrant chosen
	seq     uint64
}

func (q *fairQueue[E]) len() int { return len(q.waiting) }

// enter makes e wait, at its own virtual time or the queue's, whichever is later.
func (q *fairQueue[E]) enter(e E) {
	n := e.entry()
	if n.pos >= 0 {
		return
	}
	n.virtual = max(n.virtual, q.now)
	q.seq++
	n.seq = q.seq
	heap.Push(&q.waiting, e)
}

// leave takes e out, if it waits.
func (q *fairQueue[E]) leave(e E) {
	if n := e.entry(); n.pos >= 0 {
		heap.Remove(&q.waiting, n.pos)
	}
}

// first returns the one whose turn it is, without taking it out.
func (q *fairQueue[E]) first() (E, bool) {
	if len(q.waiting) == 0 {
		var none E
		return none, false
	}
	return q.waiting[0], true
}

// chosen notes that e got its turn.
func (q *fairQueue[E]) chosen(e E) { q.now = max(q.now, e.entry().virtual) }

// charge adds seconds of worker time over weight to e's virtual time; negative to give back.
func (q *fairQueue[E]) charge(e E, seconds, weight float64) {
	n := e.entry()
	n.virtual += seconds / weight
	if n.pos >= 0 {
		heap.Fix(&q.waiting, n.pos)
	}
}

type fairHeap[E entry] []E

func (h fairHeap[E]) Len() int { return len(h) }

func (h fairHeap[E]) Less(i, j int) bool {
	a, b := h[i].entry(), h[j].entry()
	if a.virtual != b.virtual {
		return a.virtual < b.virtual
	}
	return a.seq < b.seq
}

func (h fairHeap[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry().pos = i
	h[j].entry().pos = j
}

func (h *fairHeap[E]) Push(x any) {
	e := x.(E)
	e.entry().pos = len(*h)
	*h = append(*h, e)
}

func (h *fairHeap[E]) Pop() any {
	old := *h
	e := old[len(old)-1]
	var none E
	old[len(old)-1] = none
	*h = old[:len(old)-1]
	e.entry().pos = -1
	return e
}
