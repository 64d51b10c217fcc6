package faults

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// ledger is what the publishers know and what the receiver has seen, by the number in the payload.
type ledger struct {
	mu       sync.Mutex
	next     int
	sent     map[int][32]byte       // every payload that was offered, accepted or not
	accepted map[int]string         // event id
	arrived  map[int]map[string]int // how often, by webhook-id
	faults   []string
}

func newLedger() *ledger {
	return &ledger{sent: map[int][32]byte{}, accepted: map[int]string{}, arrived: map[int]map[string]int{}}
}

// payload makes the next payload to publish.
func (l *ledger) payload() (n int, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	// White space and number forms that a careless copy would change.
	payload = fmt.Sprintf("{ \"n\":%d, \"amount\": 1.10, \"text\":\"<é&>\" }", l.next)
	l.sent[l.next] = sha256.Sum256([]byte(payload))
	return l.next, payload
}

// accept notes that the publisher was told that n is accepted as the event id.
func (l *ledger) accept(n int, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, again := l.accepted[n]; again && first != id {
		l.faults = append(l.faults, fmt.Sprintf("event %d was accepted as %s and as %s", n, first, id))
	}
	l.accepted[n] = id
}

// rolledBack notes payloads that were written and taken back: they must never arrive.
func (l *ledger) rolledBack(numbers ...int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range numbers {
		delete(l.sent, n)
	}
}

// arrive notes a request to the receiver.
func (l *ledger) arrive(n int, id string, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch sum, known := l.sent[n]; {
	case !known:
		l.faults = append(l.faults, fmt.Sprintf("event %d (%s) arrived, but its publisher took it back", n, id))
	case sum != sha256.Sum256(body):
		l.faults = append(l.faults, fmt.Sprintf("event %d (%s) arrived with other bytes", n, id))
	}
	if l.arrived[n] == nil {
		l.arrived[n] = map[string]int{}
	}
	l.arrived[n][id]++
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// counts returns how many events were accepted, arrived, and are accepted but have not arrived.
func (l *ledger) counts() (accepted, arrived, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.accepted {
		if l.arrived[n] == nil {
			missing++
		}
	}
	return len(l.accepted), len(l.arrived), missing
}

// settle compares the two sides and reports every difference.
func (l *ledger) settle(t *testing.T) {
	t.Helper()
	differences := l.differences()
	for i, d := range differences {
		if i == 10 {
			t.Errorf("and %d more", len(differences)-i)
			break
		}
		t.Error(d)
	}
	accepted, arrived, _ := l.counts()
	t.Logf("%d events accepted, %d arrived, %d requests were repeats", accepted, arrived, l.repeats())
}

// differences are what must not be: an accepted event that never arrived, an event under two ids
// or under another than its publisher was told, and whatever was wrong with a single request.
func (l *ledger) differences() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.faults)
	for _, n := range slices.Sorted(maps.Keys(l.accepted)) {
		if l.arrived[n] == nil {
			all = append(all, fmt.Sprintf("event %d (%s) was accepted and never arrived", n, l.accepted[n]))
		}
	}
	for n, ids := range l.arrived {
		if len(ids) > 1 {
			all = append(all, fmt.Sprintf("event %d arrived under %d ids: %v", n, len(ids), ids))
		}
		if told, ok := l.accepted[n]; ok && ids[told] == 0 {
			all = append(all, fmt.Sprintf("event %d arrived, but not as %s, which its publisher was told", n, told))
		}
	}
	return all
}

func (l *ledger) repeats() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ids := range l.arrived {
		for _, times := range ids {
			n += times - 1
		}
	}
	return n
}

func TestLedger_findsEveryDifference(t *testing.T) {
	offered := func() (*ledger, int, []byte) {
		l := newLedger()
		n, payload := l.payload()
		return l, n, []byte(payload)
	}
	for what, c := range map[string]struct {
		happens func(l *ledger, n int, payload []byte)
		want    int
	}{
		"accepted and arrived":          {func(l *ledger, n int, p []byte) { l.accept(n, "a"); l.arrive(n, "a", p) }, 0},
		"arrived twice":                 {func(l *ledger, n int, p []byte) { l.accept(n, "a"); l.arrive(n, "a", p); l.arrive(n, "a", p) }, 0},
		"arrived, its publisher unsure": {func(l *ledger, n int, p []byte) { l.arrive(n, "a", p) }, 0},
		"refused":                       {func(*ledger, int, []byte) {}, 0},
		"lost":                          {func(l *ledger, n int, _ []byte) { l.accept(n, "a") }, 1},
		"under two ids":                 {func(l *ledger, n int, p []byte) { l.arrive(n, "a", p); l.arrive(n, "b", p) }, 1},
		"under another id":              {func(l *ledger, n int, p []byte) { l.accept(n, "a"); l.arrive(n, "b", p) }, 1},
		"accepted under two ids": {func(l *ledger, n int, p []byte) {
			l.accept(n, "a")
			l.arrive(n, "a", p)
			l.accept(n, "a")
			l.accept(n, "b")
		}, 2},
		"other bytes":             {func(l *ledger, n int, p []byte) { l.arrive(n, "a", append(p, ' ')) }, 1},
		"taken back, but arrived": {func(l *ledger, n int, p []byte) { l.rolledBack(n); l.arrive(n, "a", p) }, 1},
	} {
		t.Run(what, func(t *testing.T) {
			l, n, payload := offered()
			c.happens(l, n, payload)
			if got := l.differences(); len(got) != c.want {
				t.Errorf("%d differences, want %d: %q", len(got), c.want, got)
			}
		})
	}
}
