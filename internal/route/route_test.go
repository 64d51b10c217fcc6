package route

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// counter numbers endpoints' deliveries from 1.
type counter map[outbox.EndpointID]int64

func (c counter) Next(id outbox.EndpointID) int64 {
	c[id]++
	return c[id]
}

func row(pos int64, tenant outbox.TenantID, eventType string) outbox.OutboxRow {
	id := outbox.NewEventID(now)
	return outbox.OutboxRow{
		Shard: 7, Pos: pos, Tenant: tenant, Event: id,
		Source: &outbox.Event{ID: id, Type: eventType, OrderingKey: "key"},
	}
}

func endpoint(state outbox.EndpointState, types ...string) *outbox.Endpoint {
	return &outbox.Endpoint{ID: outbox.NewEndpointID(now), State: state, EventTypes: types}
}

func TestEvent_plansForEveryEndpointThatWantsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint *outbox.Endpoint
		want     bool
	}{
		"all":                        {endpoint(outbox.EndpointActive, "*"), true},
		"exactly it":                 {endpoint(outbox.EndpointActive, "invoice.paid"), true},
		"everything below":           {endpoint(outbox.EndpointActive, "invoice.*"), true},
		"one of several":             {endpoint(outbox.EndpointActive, "user.*", "invoice.paid"), true},
		"paused waits":               {endpoint(outbox.EndpointPaused, "*"), true},
		"disabled waits":             {endpoint(outbox.EndpointDisabled, "*"), true},
		"draft is not routed":        {endpoint(outbox.EndpointDraft, "*"), false},
		"another type":               {endpoint(outbox.EndpointActive, "invoice.voided"), false},
		"a longer type":              {endpoint(outbox.EndpointActive, "invoice.paid.late"), false},
		"below it only":              {endpoint(outbox.EndpointActive, "invoice.paid.*"), false},
		"a prefix that is no word":   {endpoint(outbox.EndpointActive, "inv.*"), false},
		"letters in another case":    {endpoint(outbox.EndpointActive, "Invoice.Paid"), false},
		"types that cannot be read":  {endpoint(outbox.EndpointActive), true},
		"a word with a star in it":   {endpoint(outbox.EndpointActive, "invoice*"), false},
		"the word before the prefix": {endpoint(outbox.EndpointActive, "invoice"), false},
	} {
		r := row(1, 3, "invoice.paid")
		plan := Event(r, NewSubscribers([]*outbox.Endpoint{tc.endpoint}), nil, counter{}, MaxDeliveries, now)
		if got := len(plan.Deliveries) == 1; got != tc.want || plan.Matched != tc.want || !plan.Last {
			t.Errorf("%s: planned %v, matched %v, last %v; want %v", name, got, plan.Matched, plan.Last, tc.want)
			continue
		}
		if !tc.want {
			continue
		}
		d := plan.Deliveries[0]
		want := outbox.Delivery{
			Shard: 7, ID: outbox.NewDeliveryID(r.Event, tc.endpoint.ID), Tenant: 3, Endpoint: tc.endpoint.ID,
			Event: r.Event, EventType: "invoice.paid", Sequence: 1, OrderingKey: "key", NextAt: now, SendableAt: now,
		}
		if d != want {
			t.Errorf("%s: %+v, want %+v", name, d, want)
		}
	}
}

func TestEvent_thatIsGoneIsPlannedForNobody(t *testing.T) {
	r := row(1, 3, "a")
	r.Source = nil
	plan := Event(r, NewSubscribers([]*outbox.Endpoint{endpoint(outbox.EndpointActive, "*")}), nil, counter{}, MaxDeliveries, now)
	if len(plan.Deliveries) != 0 || plan.Matched || !plan.Last {
		t.Errorf("%+v", plan)
	}
}

// However the budget cuts it, the chunks together are every endpoint once, in order of id.
func TestEvent_chunksCoverEveryEndpointOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "endpoints")
		budget := rapid.IntRange(1, 20).Draw(t, "budget")
		var endpoints []*outbox.Endpoint
		for range n {
			endpoints = append(endpoints, endpoint(outbox.EndpointActive, "*"))
		}
		subscribers := NewSubscribers(endpoints)
		r := row(1, 3, "a")
		seen := map[outbox.EndpointID]bool{}
		for chunk := 0; ; chunk++ {
			if chunk > n {
				t.Fatal("the chunks do not end")
			}
			plan := Event(r, subscribers, nil, counter{}, budget, now)
			if len(plan.Deliveries) > budget {
				t.Fatalf("%d deliveries, the budget is %d", len(plan.Deliveries), budget)
			}
			for _, d := range plan.Deliveries {
				if seen[d.Endpoint] {
					t.Fatalf("%v is planned twice", d.Endpoint)
				}
				seen[d.Endpoint] = true
				r.After = d.Endpoint
			}
			if plan.Matched != (n > 0) {
				t.Fatalf("chunk %d: matched %v with %d endpoints", chunk, plan.Matched, n)
			}
			if plan.Last {
				break
			}
		}
		if len(seen) != n {
			t.Fatalf("%d endpoints planned, want %d", len(seen), n)
		}
	})
}

// next takes from either class, few first, with nothing of the other out.
func next(q *Queue) (outbox.OutboxRow, bool) {
	for _, class := range []Class{Few, Many} {
		if r, ok := q.Next(class); ok {
			q.Release(class)
			return r, true
		}
	}
	return outbox.OutboxRow{}, false
}

func TestQueue_hidesNobodyBehindAMillion(t *testing.T) {
	q := NewQueue(10_000, 1<<30)
	for pos := range int64(5000) {
		q.Add(row(pos+1, 1, "a"), 1)
	}
	if q.Len() != 1000 {
		t.Fatalf("one tenant fills %d of 10,000 places, want a tenth", q.Len())
	}
	for tenant := range outbox.TenantID(50) {
		if !q.Add(row(10_000+int64(tenant), tenant+2, "a"), 1) {
			t.Fatalf("no room for tenant %d", tenant+2)
		}
	}
	seen := map[outbox.TenantID]bool{}
	for range 51 {
		r, ok := next(q)
		if !ok || seen[r.Tenant] {
			t.Fatalf("tenant %d had a second turn before others had their first", r.Tenant)
		}
		seen[r.Tenant] = true
	}
}

func TestQueue_turnsFollowWeight(t *testing.T) {
	for _, weights := range [][]float64{{1, 1}, {1, 3}, {2, 5}, {0.5, 1}, {0.1, 0.2, 0.7}} {
		q := NewQueue(100_000, 1<<30)
		pos, total := int64(0), 0.0
		for i, w := range weights {
			total += w
			for range 5000 {
				pos++
				q.Add(row(pos, outbox.TenantID(i+1), "a"), w)
			}
		}
		count := make([]float64, len(weights))
		const turns = 3000
		for range turns {
			r, _ := next(q)
			count[r.Tenant-1]++
		}
		for i, w := range weights {
			want := turns * w / total
			if count[i] < want*0.97-2 || count[i] > want*1.03+2 {
				t.Errorf("weights %v: tenant %d had %v of %d turns, want %.0f", weights, i+1, count[i], turns, want)
			}
		}
	}
}

// A row is handed out once however often it is added, until it is done or put back.
func TestQueue_takesEachRowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(1000, 1<<30)
		out := map[int64]outbox.OutboxRow{}
		waiting, routed := map[int64]bool{}, map[int64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				pos := int64(rapid.IntRange(1, 30).Draw(t, "pos"))
				_, isOut := out[pos]
				want := !isOut && !waiting[pos] && !routed[pos]
				if got := q.Add(row(pos, outbox.TenantID(pos%5+1), "a"), 1); got != want {
					t.Fatalf("add %d: %v, want %v", pos, got, want)
				}
				if want {
					waiting[pos] = true
				}
			case 2:
				r, ok := next(q)
				if ok != (len(waiting) > 0) {
					t.Fatalf("next: %v with %d waiting", ok, len(waiting))
				}
				if ok {
					if !waiting[r.Pos] {
						t.Fatalf("%d was handed out though it does not wait", r.Pos)
					}
					delete(waiting, r.Pos)
					out[r.Pos] = r
				}
			case 3:
				if len(out) == 0 {
					continue
				}
				pos := slices.Min(slices.Collect(maps.Keys(out)))
				r := out[pos]
				delete(out, pos)
				switch rapid.IntRange(0, 2).Draw(t, "end") {
				case 0:
					q.Again(r, 1)
					waiting[pos] = true
				case 1:
					q.Forget(pos)
				case 2: // a reader that was late does not bring it back
					q.Done(pos)
					routed[pos] = true
				}
			}
			if q.Len() != len(waiting) {
				t.Fatalf("%d rows wait, the queue says %d", len(waiting), q.Len())
			}
		}
		q.Drop(map[outbox.Shard]bool{7: true})
		if q.Len() != 0 {
			t.Fatalf("%d rows left after their shard was given up", q.Len())
		}
	})
}

func TestQueue_boundsBytes(t *testing.T) {
	q := NewQueue(1000, 1<<20)
	for i := range int64(10) {
		r := row(i+1, outbox.TenantID(i+1), "a")
		r.HasPayload, r.Source.Payload = true, make([]byte, 256<<10)
		q.Add(r, 1)
	}
	// Four payloads of a quarter fill it; each row also counts for itself, so the fourth is the last.
	if q.Len() != 4 {
		t.Errorf("%d rows of 256 KiB fit in 1 MiB, want 4", q.Len())
	}
}

// Rows that are put back come out in the order of acceptance, whatever the order they came back in.
func TestQueue_againKeepsTheOrderOfAcceptance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(1000, 1<<30)
		const n = 12
		for pos := range int64(n) {
			q.Add(row(pos+1, 1, "a"), 1)
		}
		var out []outbox.OutboxRow
		for range rapid.IntRange(0, n).Draw(t, "out") {
			r, _ := next(q)
			out = append(out, r)
		}
		for _, r := range rapid.Permutation(out).Draw(t, "back") {
			q.Again(r, 1)
		}
		for want := int64(1); want <= n; want++ {
			if r, ok := next(q); !ok || r.Pos != want {
				t.Fatalf("position %d came out, want %d", r.Pos, want)
			}
		}
	})
}

func TestQueue_partsCrowdsFromTheRest(t *testing.T) {
	far := row(900, 4, "a")
	far.After = outbox.EndpointID{1}
	cancel := row(901, 5, "")
	cancel.Kind, cancel.Command.Name = outbox.OutboxCommand, outbox.CommandCancelTenant
	probe := row(902, 6, "")
	probe.Kind, probe.Command.Name = outbox.OutboxCommand, outbox.CommandProbe
	q := NewQueue(10_000, 1<<30)
	for _, r := range []outbox.OutboxRow{far, cancel, probe} {
		q.Add(r, 1)
	}
	for pos := range int64(Crowd) {
		q.Add(row(pos+1, 1, "a"), 1)
		q.Add(row(pos+101, 2, "a"), 1)
		q.Add(row(pos+201, 3, "a"), 1)
	}
	q.Add(row(299, 2, "a"), 1)

	for class, want := range map[Class]map[outbox.TenantID]int{
		Few:  {1: Crowd, 3: Crowd, 6: 1},
		Many: {2: Crowd + 1, 4: 1, 5: 1},
	} {
		got := map[outbox.TenantID]int{}
		for r, ok := q.Next(class); ok; r, ok = q.Next(class) {
			got[r.Tenant]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("class %d (-want +got):\n%s", class, diff)
		}
	}
}

// Two transactions at once must not number one endpoint's deliveries: whatever is added and put
// back meanwhile, no tenant is out in both classes, and what waits of it waits in order.
func TestQueue_aTenantIsOutInOneClassAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(100_000, 1<<30)
		var out [2][]outbox.OutboxRow
		last := map[outbox.TenantID]int64{}
		pos := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				tenant := outbox.TenantID(rapid.IntRange(1, 3).Draw(t, "tenant"))
				for range rapid.IntRange(1, Crowd).Draw(t, "rows") {
					pos++
					q.Add(row(pos, tenant, "a"), 1)
				}
			},
			"take": func(t *rapid.T) {
				class := Class(rapid.IntRange(0, 1).Draw(t, "class"))
				for range rapid.IntRange(1, 2*Crowd).Draw(t, "rows") {
					r, ok := q.Next(class)
					if !ok {
						return
					}
					for _, other := range out[1-class] {
						if other.Tenant == r.Tenant {
							t.Fatalf("row %d of tenant %d was yielded while the other class has row %d", r.Pos, r.Tenant, other.Pos)
						}
					}
					if r.Pos < last[r.Tenant] {
						t.Fatalf("row %d of tenant %d came after row %d", r.Pos, r.Tenant, last[r.Tenant])
					}
					last[r.Tenant] = r.Pos
					out[class] = append(out[class], r)
				}
			},
			"settle": func(t *rapid.T) {
				class := Class(rapid.IntRange(0, 1).Draw(t, "class"))
				for _, r := range out[class] {
					if rapid.Bool().Draw(t, "again") {
						last[r.Tenant] = min(last[r.Tenant], r.Pos-1)
						q.Again(r, 1)
					} else {
						q.Done(r.Pos)
					}
				}
				out[class] = nil
				q.Release(class)
			},
		})
		// Nothing is stuck in a class that nobody takes from.
		for class := range out {
			for _, r := range out[class] {
				q.Done(r.Pos)
			}
			q.Release(Class(class))
		}
		for waiting := q.Len(); waiting > 0; waiting-- {
			if _, ok := next(q); !ok {
				t.Fatalf("%d rows wait and none is yielded", waiting)
			}
		}
	})
}

// Rows may wait only where nobody waits for them.
func TestQueue_isPatientWithFewEventsOfTenantsThatKeep(t *testing.T) {
	keeps := func(tenant outbox.TenantID) bool { return tenant != 9 }
	command, replay, test := row(4, 1, "a"), row(4, 1, "a"), row(4, 1, "a")
	command.Kind, replay.Kind = outbox.OutboxCommand, outbox.OutboxReplay
	command.Command.Name = outbox.CommandProbe
	test.Endpoint = outbox.NewEndpointID(time.Now())
	for name, tc := range map[string]struct {
		more []outbox.OutboxRow
		want bool
	}{
		"three events":                       {nil, true},
		"four":                               {[]outbox.OutboxRow{row(4, 3, "a")}, true},
		"five":                               {[]outbox.OutboxRow{row(4, 3, "a"), row(5, 1, "a")}, false},
		"one of a tenant that does not keep": {[]outbox.OutboxRow{row(4, 9, "a")}, false},
		"a command":                          {[]outbox.OutboxRow{command}, false},
		"a replay":                           {[]outbox.OutboxRow{replay}, false},
		"a test":                             {[]outbox.OutboxRow{test}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue(100, 1<<20)
			if q.Patient(Few, 5, keeps) {
				t.Error("patient with nothing")
			}
			for _, r := range append([]outbox.OutboxRow{row(1, 1, "a"), row(2, 1, "a"), row(3, 2, "a")}, tc.more...) {
				q.Add(r, 1)
			}
			if got := q.Patient(Few, 5, keeps); got != tc.want {
				t.Errorf("patient: %v, want %v", got, tc.want)
			}
			if q.Patient(Many, 5, keeps) {
				t.Error("patient with nothing of the other class")
			}
		})
	}
}
