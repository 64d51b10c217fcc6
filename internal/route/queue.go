package route

import (
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Crowd is how many rows of one tenant may wait before it is one of many rows. An event whose
// deliveries take several transactions makes its tenant one too, and so does a command, which may
// end a million deliveries.
const Crowd = 50

// Class parts the tenants by how much of theirs waits, so that those with little are routed by
// transactions of their own, beside the large ones that a flood makes.
type Class int

const (
	Few  Class = iota // what a tenant publishes now and then
	Many              // a tenant is of this class until nothing of it waits
)

// Queue holds outbox rows until they are routed, a list per tenant, and yields them round robin
// by weight: one tenant's million events hide nobody's. It is not safe for concurrent use.
//
// Each class has one taker: it takes rows by Next, settles every one of them (Done, Again, Forget),
// and calls Release. Until then nothing of the same tenants is yielded to the other taker: two
// transactions at once must not number the deliveries of one endpoint.
type Queue struct {
	// MaxRows and MaxBytes bound what is held. A row that does not fit is left in the database
	// and read again later.
	MaxRows  int
	MaxBytes int64

	taken   map[int64]struct{}    // positions held, or out being routed
	routed  [2]map[int64]struct{} // positions routed lately: the newer, the older
	tenants map[outbox.TenantID]*list
	rings   [2]ring                         // by class
	out     [2]map[outbox.TenantID]struct{} // by class: whose rows were taken since the last Release
	rows    int
	bytes   int64
}

// ring is the tenants of a class that have rows, in turn.
type ring struct {
	lists []*list
	turn  int
}

type list struct {
	tenant outbox.TenantID
	class  Class
	weight float64
	credit float64
	heavy  bool // has had a row that stands for many
	rows   []outbox.OutboxRow
}

// NewQueue returns an empty queue.
func NewQueue(maxRows int, maxBytes int64) *Queue {
	return &Queue{
		MaxRows:  maxRows,
		MaxBytes: maxBytes,
		taken:    map[int64]struct{}{},
		routed:   [2]map[int64]struct{}{{}, {}},
		tenants:  map[outbox.TenantID]*list{},
		out:      [2]map[outbox.TenantID]struct{}{{}, {}},
	}
}

// Len returns the number of rows waiting.
func (q *Queue) Len() int { return q.rows }

// Taken reports whether the row at pos is held, out being routed, or was routed lately: a read of
// the outbox may be older than the commit that took the row away.
func (q *Queue) Taken(pos int64) bool {
	for _, set := range []map[int64]struct{}{q.taken, q.routed[0], q.routed[1]} {
		if _, ok := set[pos]; ok {
			return true
		}
	}
	return false
}

// tenantShare is the part of the queue one tenant may fill, so that there is room for others.
const tenantShare = 10

// Room says how many more rows of the tenant would be taken, as far as their number goes.
func (q *Queue) Room(tenant outbox.TenantID) int {
	if q.bytes >= q.MaxBytes {
		return 0
	}
	return max(0, min(q.MaxRows-q.rows, q.share()-q.held(tenant)))
}

// Hungry reports whether so much of the tenant's part is empty that reading on is worth while.
func (q *Queue) Hungry(tenant outbox.TenantID) bool {
	return q.held(tenant) <= q.share()/2 && q.rows <= q.MaxRows/2 && q.bytes <= q.MaxBytes/2
}

func (q *Queue) share() int { return max(1, q.MaxRows/tenantShare) }

func (q *Queue) held(tenant outbox.TenantID) int {
	if l := q.tenants[tenant]; l != nil {
		return len(l.rows)
	}
	return 0
}

// Add takes a row and reports whether it did; false if it is taken already or there is no room.
func (q *Queue) Add(row outbox.OutboxRow, weight float64) bool {
	if q.Taken(row.Pos) || q.Room(row.Tenant) == 0 {
		return false
	}
	q.taken[row.Pos] = struct{}{}
	q.push(row, weight)
	return true
}

func (q *Queue) push(row outbox.OutboxRow, weight float64) {
	l := q.tenants[row.Tenant]
	if l == nil {
		l = &list{tenant: row.Tenant, class: q.classOut(row.Tenant)}
		q.tenants[row.Tenant] = l
		q.rings[l.class].add(l)
	}
	l.weight = max(weight, 0.01)
	l.heavy = l.heavy || !row.After.IsZero() || row.Kind == outbox.OutboxCommand && row.Command.Name != outbox.CommandProbe
	l.rows = append(l.rows, row)
	q.rows++
	q.bytes += size(&row)
	q.classify(l)
}

// classOut is the class whose taker has rows of the tenant, Few where none has.
func (q *Queue) classOut(tenant outbox.TenantID) Class {
	if _, out := q.out[Many][tenant]; out {
		return Many
	}
	return Few
}

// classify makes a tenant with many rows one of that class, unless the taker of the other has rows
// of it: then Release does.
func (q *Queue) classify(l *list) {
	if l.class == Many || len(l.rows) <= Crowd && !l.heavy {
		return
	}
	if _, out := q.out[Few][l.tenant]; out {
		return
	}
	few := &q.rings[Few]
	few.remove(slices.Index(few.lists, l))
	l.class = Many
	q.rings[Many].add(l)
}

// Next yields the row whose turn it is in a class. It stays taken until Done.
func (q *Queue) Next(class Class) (outbox.OutboxRow, bool) {
	r := &q.rings[class]
	if len(r.lists) == 0 {
		return outbox.OutboxRow{}, false
	}
	// A tenant gives as many rows a turn as its weight says; fractions are saved up.
	l := r.lists[r.turn]
	for l.credit < 1 {
		l.credit += l.weight
		if l.credit < 1 {
			r.advance()
			l = r.lists[r.turn]
		}
	}
	l.credit--
	row := l.rows[0]
	l.rows[0] = outbox.OutboxRow{}
	l.rows = l.rows[1:]
	q.rows--
	q.bytes -= size(&row)
	q.out[class][row.Tenant] = struct{}{}
	if len(l.rows) == 0 {
		delete(q.tenants, l.tenant)
		r.remove(r.turn)
	} else if l.credit < 1 {
		r.advance()
	}
	return row, true
}

// Patient reports whether nothing is lost by routing what waits in a class a little later: it is fewer
// than few rows, events all of them, of tenants that keep.
func (q *Queue) Patient(class Class, few int, keeps func(outbox.TenantID) bool) bool {
	rows := 0
	for _, l := range q.rings[class].lists {
		if rows += len(l.rows); rows >= few || !keeps(l.tenant) {
			return false
		}
		for i := range l.rows {
			if r := &l.rows[i]; r.Kind != outbox.OutboxEvent || !r.Endpoint.IsZero() {
				return false // a command, a replay or a test, which somebody waits for
			}
		}
	}
	return rows > 0
}

// Release says that every row taken in a class is settled, and reports whether the taker of the
// other class has something to take by that.
func (q *Queue) Release(class Class) (moved bool) {
	for tenant := range q.out[class] {
		delete(q.out[class], tenant)
		if l := q.tenants[tenant]; l != nil {
			q.classify(l)
			moved = moved || l.class != class
		}
	}
	return moved
}

func (r *ring) add(l *list) { r.lists = append(r.lists, l) }

func (r *ring) remove(i int) {
	r.lists = slices.Delete(r.lists, i, i+1)
	if i < r.turn {
		r.turn--
	}
	if r.turn >= len(r.lists) {
		r.turn = 0
	}
}

func (r *ring) advance() { r.turn = (r.turn + 1) % len(r.lists) }

// lately is how many routed positions are remembered at least; a read that is older than that
// many routed rows finds its rows gone when it comes to route them, which costs a transaction.
const lately = 20_000

// Done ends a row that is gone from the database.
func (q *Queue) Done(pos int64) {
	delete(q.taken, pos)
	q.routed[0][pos] = struct{}{}
	if len(q.routed[0]) >= lately {
		q.routed[0], q.routed[1] = map[int64]struct{}{}, q.routed[0]
	}
}

// Forget lets a row be taken again: it may still be in the database.
func (q *Queue) Forget(pos int64) { delete(q.taken, pos) }

// Again puts a row back that was taken out, before those of its tenant's that were accepted after
// it: an event that takes several transactions is numbered before the next one as far as it can
// be, and rows put back in any order come out in theirs.
func (q *Queue) Again(row outbox.OutboxRow, weight float64) {
	q.push(row, weight)
	rows := q.tenants[row.Tenant].rows
	at := 0
	for at < len(rows)-1 && rows[at].Pos < row.Pos {
		at++
	}
	copy(rows[at+1:], rows[at:len(rows)-1])
	rows[at] = row
}

// Drop forgets every row of the shards.
func (q *Queue) Drop(shards map[outbox.Shard]bool) {
	for class := range q.rings {
		r := &q.rings[class]
		var kept []*list
		for _, l := range r.lists {
			if !shards[l.rows[0].Shard] {
				kept = append(kept, l)
				continue
			}
			for i := range l.rows {
				delete(q.taken, l.rows[i].Pos)
				q.bytes -= size(&l.rows[i])
			}
			q.rows -= len(l.rows)
			delete(q.tenants, l.tenant)
		}
		*r = ring{lists: kept}
	}
}

func size(row *outbox.OutboxRow) int64 {
	if row.HasPayload {
		return int64(len(row.Source.Payload)) + 256
	}
	return 256
}
