package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/pgstore"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const lease = 10 * time.Minute

// database makes an empty database with the store's tables, and one for the handlers' effects.
func database(t *testing.T, options string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.EmptyDSN(t) + options)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 { // a second time does no harm
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, "CREATE TABLE effect (id text, fence bigint)")
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// emptied returns the store without its rows, and lets its clock run by moving what it knows back.
func emptied(t *testing.T, pool *pgxpool.Pool) (*pgstore.Store, func(time.Duration)) {
	exec(t, pool, "TRUNCATE waybill_receive.event, waybill_receive.other_body, waybill_receive.version, effect")
	return pgstore.New(pool), func(d time.Duration) {
		exec(t, pool, `
			UPDATE waybill_receive.event
			SET due = due - $1::interval, received_at = received_at - $1::interval,
				expires_at = expires_at - $1::interval, ended_at = ended_at - $1::interval`, d)
	}
}

func TestStore_keepsTheContract(t *testing.T) {
	pool := database(t, "")
	t.Run("claims", func(t *testing.T) {
		receivetest.TestClaimStore(t, func(t *testing.T) (receive.ClaimStore, func(time.Duration)) { return emptied(t, pool) })
	})
	t.Run("inbox", func(t *testing.T) {
		receivetest.TestInboxStore(t, func(t *testing.T) (receive.InboxStore, func(time.Duration)) { return emptied(t, pool) })
	})
}

func TestStore_bearsTheScenarios(t *testing.T) {
	pool := database(t, "")
	receivetest.TestReceivers(t, func(t *testing.T) receivetest.Bench {
		s, advance := emptied(t, pool)
		return receivetest.Bench{
			Claims: s, Inbox: s, Advance: advance, Wipe: func() { emptied(t, pool) },
			Tx: s.InTx(insert),
			Effects: func() (n int) {
				if err := pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM effect").Scan(&n); err != nil {
					t.Error(err)
				}
				return n
			},
			Newer: func(object string, v receive.Version) bool { return apply(t, pool, object, v) },
		}
	})
}

// Behind a bouncer, and with drivers that send everything as text, the statements are the same.
func TestStore_keepsTheContractInEveryQueryMode(t *testing.T) {
	for _, mode := range []string{"simple_protocol", "exec", "describe_exec"} {
		t.Run(mode, func(t *testing.T) {
			pool := database(t, "&default_query_exec_mode="+mode)
			receivetest.TestInboxStore(t, func(t *testing.T) (receive.InboxStore, func(time.Duration)) { return emptied(t, pool) })
		})
	}
}

func claim(t *testing.T, s *pgstore.Store, id string) (*receive.Delivery, receive.Found) {
	t.Helper()
	r := receivetest.NewRecord("billing", id, "{}")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	f, err := s.Claim(ctx, &r, receive.NewToken(), lease)
	if err != nil {
		t.Fatal(err)
	}
	c := f.Claim
	if c == nil {
		c = &receive.Claim{Key: r.Key, Token: receive.NewToken()}
	}
	return receive.NewDelivery("stripe", &r, c, time.Hour), f
}

// A claim must not wait for somebody's transaction: it would be taken for a store that is down, and
// under Open a twin would run.
func TestClaim_doesNotWaitForARowThatATransactionHasLocked(t *testing.T) {
	pool := database(t, "")
	s, advance := emptied(t, pool)
	d, _ := claim(t, s, "evt_1")
	unclaimed := receivetest.NewRecord("billing", "evt_2", "{}")
	degraded := receive.NewDelivery("stripe", &unclaimed, &receive.Claim{Key: unclaimed.Key, Token: receive.NewToken()}, time.Hour)
	for name, confirm := range map[string]*receive.Delivery{"evt_1": d, "evt_2": degraded} {
		t.Run(name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if err := s.ConfirmTx(t.Context(), tx, confirm); err != nil {
				t.Fatal(err)
			}
			advanceIfClaimed := func() {
				if name == "evt_2" {
					advance(2 * lease)
				}
			}
			advanceIfClaimed()
			for range 20 {
				if _, f := claim(t, s, name); f.State != receive.Held || f.Claim != nil || f.Left <= 0 {
					t.Fatalf("a row being confirmed is %v, left %v, claim %v", f.State, f.Left, f.Claim)
				}
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, f := claim(t, s, name); f.State != receive.Done {
				t.Errorf("after the commit it is %v", f.State)
			}
		})
	}
}

// A degraded run that confirms takes what is free, and nothing that another run has.
func TestConfirmTx_ofADegradedRun(t *testing.T) {
	pool := database(t, "")
	s, advance := emptied(t, pool)
	for name, test := range map[string]struct {
		prepare func(id string)
		want    error
	}{
		"nobody has seen it":            {func(string) {}, nil},
		"a run failed":                  {func(id string) { d, _ := claim(t, s, id); settle(t, s, d, receive.Free) }, nil},
		"a run's lease is over":         {func(id string) { claim(t, s, id); advance(2 * lease) }, nil},
		"a run has it":                  {func(id string) { claim(t, s, id) }, receive.ErrLeaseLost},
		"it is done":                    {func(id string) { d, _ := claim(t, s, id); settle(t, s, d, receive.Done) }, receive.ErrLeaseLost},
		"it was done, and is forgotten": {func(id string) { d, _ := claim(t, s, id); settle(t, s, d, receive.Done); advance(2 * time.Hour) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			id := "evt " + name
			test.prepare(id)
			r := receivetest.NewRecord("billing", id, "{}")
			d := receive.NewDelivery("stripe", &r, &receive.Claim{Key: r.Key, Token: receive.NewToken()}, time.Hour)
			err := s.InTx(insert)(t.Context(), d)
			if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if got, want := effects(t, pool, id), map[bool]int{true: 1, false: 0}[test.want == nil]; got != want {
				t.Errorf("%d effects, want %d", got, want)
			}
		})
	}
}

func settle(t *testing.T, s *pgstore.Store, d *receive.Delivery, state receive.State) {
	t.Helper()
	if err := s.Settle(t.Context(), d.Claim(), receive.Outcome{State: state, Retain: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// insert is a handler's effect.
func insert(ctx context.Context, tx pgx.Tx, d *receive.Delivery) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (id, fence) VALUES ($1, $2)", d.ID, d.Fence)
	return err
}

func effects(t *testing.T, pool *pgxpool.Pool, id string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM effect WHERE id = $1", id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two runs of one event, the first overtaken: one effect, whoever commits first.
func TestInTx_anOvertakenRunHasNoEffect(t *testing.T) {
	pool := database(t, "")
	s, advance := emptied(t, pool)
	first, _ := claim(t, s, "evt_1")
	overtaken := make(chan struct{})
	err := s.InTx(func(ctx context.Context, tx pgx.Tx, d *receive.Delivery) error {
		if err := insert(ctx, tx, d); err != nil {
			return err
		}
		advance(2 * lease)
		second, f := claim(t, s, "evt_1")
		if f.Claim == nil || f.Claim.Crashes != 1 || f.Claim.Fence <= d.Fence {
			t.Errorf("the second run: %+v", f)
		}
		if err := s.InTx(insert)(ctx, second); err != nil {
			t.Error(err)
		}
		close(overtaken)
		return nil
	})(t.Context(), first)
	<-overtaken
	if !errors.Is(err, receive.ErrLeaseLost) {
		t.Errorf("the overtaken run: %v", err)
	}
	if n := effects(t, pool, "evt_1"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// A handler's nil is not a commit: the receiver asks the database.
func TestConfirmTx_isBelievedOnlyWhenItIsCommitted(t *testing.T) {
	pool := database(t, "")
	s, _ := emptied(t, pool)
	look := receive.Outcome{State: receive.Done, Look: true}
	for name, test := range map[string]struct {
		end  func(pgx.Tx) error
		want error
	}{
		"committed":   {func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, nil},
		"rolled back": {func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, receive.ErrNotCommitted},
	} {
		d, _ := claim(t, s, name)
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ConfirmTx(t.Context(), tx, d); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), d.Claim(), look); !errors.Is(err, receive.ErrNotCommitted) {
			t.Errorf("%s, while the transaction is open: %v", name, err)
		}
		if err := test.end(tx); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), d.Claim(), look); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// Whatever order the versions arrive in, the newest stays, and older ones are counted.
func TestNewer_inEveryOrder(t *testing.T) {
	pool := database(t, "")
	s, _ := emptied(t, pool)
	versions := []receive.Version{{At: 100, Tie: "evt_a"}, {At: 101, Tie: "evt_B"}, {At: 101, Tie: "evt_a"}} // B before a, as bytes
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for n, order := range orders {
		object := fmt.Sprint("sub_", n)
		var applied, best, stale int
		for i, v := range order {
			newer := apply(t, pool, object, versions[v])
			if want := i == 0 || v > best; newer != want {
				t.Errorf("order %v: version %d newer: %v", order, v, newer)
			}
			if newer {
				applied, best = applied+1, v
			} else {
				stale++
			}
		}
		if best != 2 {
			t.Errorf("order %v ends with version %d", order, best)
		}
		if apply(t, pool, object, versions[2]) {
			t.Errorf("order %v: a repeat is newer", order)
		}
		got, err := s.Stale(t.Context(), object)
		if err != nil || got != int64(stale) {
			t.Errorf("order %v: %d stale (%v), want %d", order, got, err, stale)
		}
	}
}

func apply(t *testing.T, pool *pgxpool.Pool, object string, v receive.Version) (newer bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		newer, err = pgstore.Newer(t.Context(), tx, object, v)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return newer
}

// Two versions at once: the second waits for the first, and is judged by what that left.
func TestNewer_atOnce(t *testing.T) {
	pool := database(t, "")
	emptied(t, pool)
	var group sync.WaitGroup
	var mu sync.Mutex
	last := int64(-1)
	for at := range int64(20) {
		group.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				newer, err := pgstore.Newer(t.Context(), tx, "sub_1", receive.Version{At: at})
				if newer {
					mu.Lock()
					last = max(last, at)
					mu.Unlock()
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if last != 19 {
		t.Errorf("the newest that was applied is %d", last)
	}
}

func TestCheck_saysWhatWouldLose(t *testing.T) {
	pool := database(t, "")
	rules := func() map[receive.Rule]int {
		problems, err := pgstore.New(pool).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := map[receive.Rule]int{}
		for _, p := range problems {
			found[p.Rule]++
		}
		return found
	}
	// The tests' own server waits for no disk: fsync and synchronous_commit are off.
	if got := rules(); got[receive.NotDurable] != 2 || got[receive.Incomplete] != 0 {
		t.Errorf("%v", got)
	}
	exec(t, pool, "DROP SCHEMA waybill_receive CASCADE")
	if got := rules(); got[receive.Incomplete] != 1 {
		t.Errorf("without tables: %v", got)
	}
}

// The due events of a source are found by index, however many there are of others, done or dead.
func TestTake_readsOnlyWhatIsDue(t *testing.T) {
	pool := database(t, "")
	s, _ := emptied(t, pool)
	exec(t, pool, `
		INSERT INTO waybill_receive.event (key, source, account, id, place, state, due, received_at, expires_at, digest, body)
		SELECT sha256(n::text::bytea), 'billing', '', n::text::bytea, 0, 2, now(), now(), now() + interval '1 day', sha256(''), ''
		FROM generate_series(1, 20000) AS n`)
	exec(t, pool, "ANALYZE waybill_receive.event")
	r := receivetest.NewRecord("billing", "evt_1", "{}")
	if _, err := s.Put(t.Context(), []receive.Record{r}); err != nil {
		t.Fatal(err)
	}
	var before, after int64
	scans := "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_xact_user_tables WHERE relname = 'event'"
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(t.Context(), scans).Scan(&before); err != nil {
			return err
		}
		inside := pgstore.New(only{tx})
		if taken, err := inside.Take(t.Context(), "billing", 10, lease); err != nil || len(taken) != 1 {
			return fmt.Errorf("took %d: %w", len(taken), err)
		}
		if _, err := inside.Claim(t.Context(), &r, receive.NewToken(), lease); err != nil {
			return err
		}
		if _, err := inside.Prune(t.Context()); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), scans).Scan(&after)
	})
	if err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("%d rows were read without an index", after-before)
	}
}

// only is one transaction as a pool.
type only struct{ pgx.Tx }

// Done before the effects would lose them; so what commits by itself does not fit where a
// transaction is wanted.
func TestConfirmTx_takesNothingButATransaction(t *testing.T) {
	wants := reflect.TypeOf((*pgstore.Store).ConfirmTx).In(2)
	for _, autocommits := range []reflect.Type{reflect.TypeFor[*pgxpool.Pool](), reflect.TypeFor[*pgxpool.Conn](), reflect.TypeFor[*pgx.Conn]()} {
		if autocommits.AssignableTo(wants) {
			t.Errorf("%v fits", autocommits)
		}
	}
}
