package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

type offered struct {
	mu   sync.Mutex
	rows []outbox.OutboxRow
}

func (o *offered) Offer(rows []outbox.OutboxRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rows = append(o.rows, rows...)
}

// submit runs the submissions at the same time and returns their outcomes in order.
func submit(t *testing.T, c *Committer, all ...[]outbox.NewEvent) []outcome {
	t.Helper()
	out := make([]outcome, len(all))
	var wg sync.WaitGroup
	for i, events := range all {
		wg.Go(func() {
			out[i].accepted, out[i].conflicts, out[i].err = c.Submit(t.Context(), events)
		})
	}
	wg.Wait()
	return out
}

func closeAll(t *testing.T, c *Committer) {
	t.Helper()
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestCommitter_manyCallersShareATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Millisecond
		rows := &offered{}
		c := New(Config{Store: store, Handoff: rows})
		all := make([][]outbox.NewEvent, 500)
		for i := range all {
			all[i] = []outbox.NewEvent{event("{}")}
		}
		for i, out := range submit(t, c, all...) {
			if out.err != nil || len(out.accepted) != 1 || out.accepted[0].ID != all[i][0].ID {
				t.Fatalf("submission %d: %+v", i, out)
			}
		}
		closeAll(t, c)
		if n := len(store.calls); n > 10 {
			t.Errorf("500 events took %d transactions", n)
		}
		if len(rows.rows) != 500 {
			t.Fatalf("%d rows were offered to the router, want 500", len(rows.rows))
		}
		for _, row := range rows.rows {
			if row.Pos == 0 || row.Source == nil || row.Source.ID != row.Event || !row.HasPayload {
				t.Fatalf("offered %+v", row)
			}
		}
	})
}

func TestCommitter_idleMeansNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = 3 * time.Millisecond
		c := New(Config{Store: store})
		began := time.Now()
		submit(t, c, []outbox.NewEvent{event("{}")})
		if took := time.Since(began); took != store.delay {
			t.Errorf("took %v, the store alone %v", took, store.delay)
		}
		closeAll(t, c)
	})
}

func TestCommitter_transactionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Millisecond
		c := New(Config{Store: store, MaxEvents: 10, MaxBytes: 100, Writers: 1})
		var all [][]outbox.NewEvent
		for range 30 {
			all = append(all, []outbox.NewEvent{event(`"0123456789012"`), event(`{}`)}) // 17 bytes
		}
		submit(t, c, all...)
		closeAll(t, c)
		for i, n := range store.sizes() {
			if n > 10 {
				t.Errorf("transaction %d has %d events, %d bytes", i, n, 17*n/2)
			}
		}
	})
}

func TestCommitter_everyFault(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(call int, batch []outbox.NewEvent) (bool, error)
		want   error
		calls  int // 0: any number
		stored int
	}{
		"none": {want: nil, calls: 1, stored: 1},
		"unknown, was applied": {
			before: func(call int, _ []outbox.NewEvent) (bool, error) {
				return true, map[bool]error{true: fault(outbox.FaultUnknown)}[call == 1]
			},
			calls: 2, stored: 1,
		},
		"unknown, was not applied": {
			before: func(call int, _ []outbox.NewEvent) (bool, error) {
				return call > 1, map[bool]error{true: fault(outbox.FaultUnknown)}[call == 1]
			},
			calls: 2, stored: 1,
		},
		"unknown and applied, then the database is away for a minute": {
			before: func(call int, _ []outbox.NewEvent) (bool, error) {
				switch {
				case call == 1:
					return true, fault(outbox.FaultUnknown)
				case call < 60:
					return false, fault(outbox.FaultRetry)
				}
				return true, nil
			},
			calls: 60, stored: 1,
		},
		"unknown, then our own lost transaction holds the key": {
			before: func(call int, _ []outbox.NewEvent) (bool, error) {
				switch call {
				case 1:
					return true, fault(outbox.FaultUnknown)
				case 2:
					return false, fault(outbox.FaultLocked)
				}
				return true, nil
			},
			calls: 3, stored: 1,
		},
		"retry, then well": {
			before: func(call int, _ []outbox.NewEvent) (bool, error) {
				return call > 3, map[bool]error{true: fault(outbox.FaultRetry)}[call <= 3]
			},
			calls: 4, stored: 1,
		},
		"retry for ever": {
			before: func(int, []outbox.NewEvent) (bool, error) { return false, fault(outbox.FaultRetry) },
			want:   ErrUnavailable,
		},
		"refused": {
			before: func(int, []outbox.NewEvent) (bool, error) { return false, fault(outbox.FaultRefused) },
			want:   ErrRefused, calls: 1,
		},
		"locked": {
			before: func(int, []outbox.NewEvent) (bool, error) { return false, fault(outbox.FaultLocked) },
			want:   ErrLocked, calls: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				store.before = tc.before
				c := New(Config{Store: store})
				e := event("{}")
				out := submit(t, c, []outbox.NewEvent{e})[0]
				closeAll(t, c)
				if !errors.Is(out.err, tc.want) {
					t.Errorf("error %v, want %v", out.err, tc.want)
				}
				if tc.want == nil && (len(out.accepted) != 1 || out.accepted[0].Duplicate || out.accepted[0].ID != e.ID) {
					t.Errorf("answer %+v", out.accepted)
				}
				if n := len(store.calls); tc.calls != 0 && n != tc.calls {
					t.Errorf("%d calls of the store, want %d", n, tc.calls)
				}
				if n := store.rowsOf(e.ID); n != tc.stored {
					t.Errorf("stored %d times, want %d", n, tc.stored)
				}
			})
		})
	}
}

func TestCommitter_aDefectIsNotCalledAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.before = func(int, []outbox.NewEvent) (bool, error) { return false, errors.New("column does not exist") }
		c := New(Config{Store: store})
		out := submit(t, c, []outbox.NewEvent{event("{}")})[0]
		closeAll(t, c)
		if out.err == nil || errors.Is(out.err, ErrUnavailable) || len(store.calls) != 1 {
			t.Errorf("%v after %d calls", out.err, len(store.calls))
		}
	})
}

func TestCommitter_onlyTheGuiltyOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Millisecond
		store.before = func(_ int, batch []outbox.NewEvent) (bool, error) {
			for i := range batch {
				if string(batch[i].Payload) == `"guilty"` {
					return false, fault(outbox.FaultRefused)
				}
			}
			return true, nil
		}
		c := New(Config{Store: store, Writers: 1})
		var all [][]outbox.NewEvent
		for i := range 100 {
			p := "{}"
			if i == 37 || i == 38 {
				p = `"guilty"`
			}
			all = append(all, []outbox.NewEvent{event("1"), event(p)})
		}
		for i, out := range submit(t, c, all...) {
			guilty := i == 37 || i == 38
			if guilty != errors.Is(out.err, ErrRefused) || !guilty && out.err != nil {
				t.Errorf("submission %d: %v", i, out.err)
			}
			want := 1
			if guilty {
				want = 0
			}
			for _, e := range all[i] {
				if n := store.rowsOf(e.ID); n != want {
					t.Errorf("submission %d: an event is stored %d times, want %d", i, n, want)
				}
			}
		}
		closeAll(t, c)
	})
}

func TestCommitter_conflictsAreAnsweredAndTheRestIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		c := New(Config{Store: store, Writers: 1})
		first := event("{}")
		first.IdempotencyKey = "k"
		submit(t, c, []outbox.NewEvent{first})

		same, other, chosen := event("{}"), event("[1]"), first
		same.IdempotencyKey, other.IdempotencyKey = "k", "k"
		chosen.IdempotencyKey, chosen.Chosen = "", true
		chosen.SHA256[0]++
		fresh := event("{}")
		fresh.IdempotencyKey = "fresh"
		out := submit(t, c, []outbox.NewEvent{same}, []outbox.NewEvent{fresh, other}, []outbox.NewEvent{chosen})
		if a := out[0].accepted; len(a) != 1 || !a[0].Duplicate || a[0].ID != first.ID {
			t.Errorf("same key, same content: %+v", out[0])
		}
		if want := []outbox.Conflict{{Index: 1, Err: outbox.ErrIdempotencyMismatch}}; !cmp.Equal(out[1].conflicts, want, cmp.Comparer(sameError)) {
			t.Errorf("same key, other content: %+v, want %+v", out[1].conflicts, want)
		}
		if want := []outbox.Conflict{{Index: 0, Err: outbox.ErrIDConflict}}; !cmp.Equal(out[2].conflicts, want, cmp.Comparer(sameError)) {
			t.Errorf("same id, other content: %+v, want %+v", out[2].conflicts, want)
		}
		if n := store.rowsOf(fresh.ID); n != 0 {
			t.Errorf("a submission is all or nothing, but its innocent event is stored %d times", n)
		}
		closeAll(t, c)
	})
}

func sameError(a, b error) bool { return errors.Is(a, b) }

func TestCommitter_twoWithOneKeyNeverShareATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Millisecond
		c := New(Config{Store: store})
		var all [][]outbox.NewEvent
		for range 20 {
			e := event("{}")
			e.IdempotencyKey = "one"
			all = append(all, []outbox.NewEvent{e})
		}
		ids := map[outbox.EventID]int{}
		fresh := 0
		for _, out := range submit(t, c, all...) {
			if out.err != nil || len(out.accepted) != 1 {
				t.Fatalf("%+v", out)
			}
			ids[out.accepted[0].ID]++
			if !out.accepted[0].Duplicate {
				fresh++
			}
		}
		closeAll(t, c)
		if len(ids) != 1 || fresh != 1 || len(store.stored) != 1 {
			t.Errorf("%d ids, %d called fresh, %d stored; want one of each", len(ids), fresh, len(store.stored))
		}
	})
}

func TestCommitter_aLockedKeyHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.before = func(_ int, batch []outbox.NewEvent) (bool, error) {
			for i := range batch {
				if batch[i].IdempotencyKey == "locked" {
					return false, fault(outbox.FaultLocked)
				}
			}
			return true, nil
		}
		store.delay = time.Millisecond
		c := New(Config{Store: store})
		all := [][]outbox.NewEvent{}
		for i := range 20 {
			e := event("{}")
			e.IdempotencyKey = fmt.Sprint("free", i)
			if i == 7 {
				e.IdempotencyKey = "locked"
			}
			all = append(all, []outbox.NewEvent{e})
		}
		for i, out := range submit(t, c, all...) {
			if (i == 7) != errors.Is(out.err, ErrLocked) || i != 7 && out.err != nil {
				t.Errorf("submission %d: %v", i, out.err)
			}
		}
		closeAll(t, c)
	})
}

func TestCommitter_backpressureAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Second
		c := New(Config{Store: store, QueueEvents: 3, Writers: 1})
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = c.Submit(t.Context(), []outbox.NewEvent{event("{}")}) })
		}
		synctest.Wait()
		if _, _, err := c.Submit(t.Context(), []outbox.NewEvent{event("{}")}); !errors.Is(err, ErrBusy) {
			t.Errorf("a fourth event: %v, want busy", err)
		}
		closeAll(t, c)
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Errorf("what was queued before the close: %v", err)
		}
		if _, _, err := c.Submit(t.Context(), []outbox.NewEvent{event("{}")}); !errors.Is(err, ErrClosed) {
			t.Errorf("after the close: %v, want closed", err)
		}
	})
}

func TestCommitter_closeGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.before = func(int, []outbox.NewEvent) (bool, error) { return false, fault(outbox.FaultUnknown) }
		c := New(Config{Store: store})
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, _, err = c.Submit(t.Context(), []outbox.NewEvent{event("{}")}) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if cerr := c.Close(ctx); !errors.Is(cerr, context.DeadlineExceeded) {
			t.Errorf("close: %v", cerr)
		}
		wg.Wait()
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("the caller heard %v", err)
		}
	})
}

func TestCommitter_aDefectAfterAnUnknownCommitIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.before = func(call int, _ []outbox.NewEvent) (bool, error) {
			if call == 1 {
				return true, fault(outbox.FaultUnknown)
			}
			return false, errors.New("column does not exist")
		}
		c := New(Config{Store: store})
		out := submit(t, c, []outbox.NewEvent{event("{}")})[0]
		closeAll(t, c)
		if !errors.Is(out.err, ErrUnknown) {
			t.Errorf("the caller heard %v", out.err)
		}
	})
}

func TestCommitter_behindAnUnknownCommitNobodyWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		began := time.Now()
		store.before = func(int, []outbox.NewEvent) (bool, error) {
			if time.Since(began) < time.Minute { // away for so long
				return false, fault(outbox.FaultUnknown)
			}
			return true, nil
		}
		c := New(Config{Store: store, Writers: 1})
		first, second := event("{}"), event("[]")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := c.Submit(t.Context(), []outbox.NewEvent{first}); err != nil {
				t.Errorf("the one whose outcome was unknown: %v", err)
			}
		})
		synctest.Wait()
		if _, _, err := c.Submit(t.Context(), []outbox.NewEvent{second}); !errors.Is(err, ErrBusy) {
			t.Errorf("the one behind it: %v, want busy", err)
		}
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("it waited %s, want 3s", waited)
		}
		wg.Wait()
		closeAll(t, c)
		if one, two := store.rowsOf(first.ID), store.rowsOf(second.ID); one != 1 || two != 0 {
			t.Errorf("stored %d and %d times, want 1 and 0", one, two)
		}
	})
}

func TestCommitter_aCallerWhoLeavesStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = time.Second
		c := New(Config{Store: store, Writers: 1})
		begun, waiting := event("{}"), event("[]")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := c.Submit(ctx, []outbox.NewEvent{begun}); !errors.Is(err, context.Canceled) {
				t.Errorf("begun: %v", err)
			}
		})
		synctest.Wait()
		// Half of what is being written has to wait before the next transaction; here all does.
		wg.Go(func() {
			if _, _, err := c.Submit(ctx, []outbox.NewEvent{waiting}); !errors.Is(err, context.Canceled) {
				t.Errorf("waiting: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		closeAll(t, c)
		if n := store.rowsOf(begun.ID); n != 1 {
			t.Errorf("the one under way is stored %d times, want 1", n)
		}
		if n := store.rowsOf(waiting.ID); n != 0 {
			t.Errorf("the one not begun is stored %d times, want 0", n)
		}
	})
}

// Whatever the store does, an answer of success means: in the store, exactly once; any definite
// refusal means: not in the store.
func TestCommitter_successMeansStoredExactlyOnce(t *testing.T) {
	const guilty = "refused.by.the.database"
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		failing := rapid.IntRange(0, 80).Draw(r, "percent of calls that fail")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 40).Draw(r, "events of each submission")
		keys := rapid.IntRange(0, 5).Draw(r, "idempotency keys in use")
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			store := newFakeStore()
			store.delay = time.Millisecond
			store.before = func(_ int, batch []outbox.NewEvent) (bool, error) {
				for i := range batch {
					if batch[i].Type == guilty {
						return false, fault(outbox.FaultRefused)
					}
				}
				if rng.IntN(100) >= failing {
					return true, nil
				}
				switch rng.IntN(4) {
				case 0:
					return true, fault(outbox.FaultUnknown)
				case 1:
					return false, fault(outbox.FaultUnknown)
				case 2:
					return false, fault(outbox.FaultLocked)
				}
				return false, fault(outbox.FaultRetry)
			}
			rows := &offered{}
			c := New(Config{Store: store, Handoff: rows, MaxEvents: 16})
			all := make([][]outbox.NewEvent, len(sizes))
			for i, n := range sizes {
				for j := range n {
					e := event("{}")
					if keys > 0 && j == 0 && rng.IntN(2) == 0 {
						e.IdempotencyKey = fmt.Sprint(rng.IntN(keys))
						e.SHA256[0] = byte(rng.IntN(2))
					}
					if rng.IntN(20) == 0 {
						e.Type = guilty
					}
					all[i] = append(all[i], e)
				}
			}
			outs := submit(t, c, all...)
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, out := range outs {
				for j, e := range all[i] {
					n := store.rowsOf(e.ID)
					switch {
					case out.err != nil || len(out.conflicts) > 0:
						if n != 0 {
							t.Fatalf("submission %d (%v, %v): event %d stored %d times", i, out.err, out.conflicts, j, n)
						}
					case store.rowsOf(out.accepted[j].ID) != 1:
						t.Fatalf("submission %d: answer %+v, stored %d times", i, out.accepted[j], store.rowsOf(out.accepted[j].ID))
					case out.accepted[j].ID != e.ID && (!out.accepted[j].Duplicate || n != 0):
						t.Fatalf("submission %d: met %v and was stored %d times", i, out.accepted[j], n)
					}
				}
			}
			seen := map[outbox.EventID]bool{}
			for _, row := range rows.rows {
				if seen[row.Event] || store.rowsOf(row.Event) != 1 {
					t.Fatalf("%v offered twice, or not stored", row.Event)
				}
				seen[row.Event] = true
			}
		})
	})
}
