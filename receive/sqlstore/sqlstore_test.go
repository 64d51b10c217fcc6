package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/receive/sqlstore"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const lease = 10 * time.Minute

// site is a database with a store in it.
type site struct {
	db    *sql.DB
	store *sqlstore.Store
	// rewind moves what the store knows back by some microseconds, so that its clock has run.
	rewind string
	empty  []string
	bind   func(sql string) string // ? as the database wants it
}

func (s *site) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), s.bind(sql), args...); err != nil {
		t.Fatal(err)
	}
}

func (s *site) advance(t *testing.T) func(time.Duration) {
	return func(d time.Duration) { s.exec(t, s.rewind, d.Microseconds()) }
}

func (s *site) emptied(t *testing.T) (*sqlstore.Store, func(time.Duration)) {
	for _, statement := range s.empty {
		s.exec(t, statement)
	}
	return s.store, s.advance(t)
}

const rewindSQLite = `
	UPDATE waybill_receive_event
	SET due = due - ?1, received_at = received_at - ?1, expires_at = expires_at - ?1, ended_at = ended_at - ?1`

const rewindPostgres = `
	UPDATE waybill_receive.event
	SET due = due - d, received_at = received_at - d, expires_at = expires_at - d, ended_at = ended_at - d
	FROM (SELECT $1::bigint * interval '1 microsecond' AS d) AS by`

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func prepare(t *testing.T, s *site) *site {
	t.Helper()
	for range 2 { // a second time does no harm
		if err := s.store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(t, "CREATE TABLE effect (id text, fence bigint)")
	return s
}

func lite(t *testing.T, journal, synchronous string) *site {
	db := open(t, "sqlite", fmt.Sprintf("file:%s?_pragma=journal_mode(%s)&_pragma=synchronous(%s)", filepath.Join(t.TempDir(), "receive.db"), journal, synchronous))
	return prepare(t, &site{
		db: db, store: sqlstore.SQLite(db), rewind: rewindSQLite,
		empty: []string{"DELETE FROM waybill_receive_event", "DELETE FROM waybill_receive_other_body", "DELETE FROM waybill_receive_version", "DELETE FROM effect"},
		bind:  func(sql string) string { return sql },
	})
}

func postgres(t *testing.T) *site {
	db := open(t, "pgx", pgtest.EmptyDSN(t))
	db.SetMaxOpenConns(20)
	return prepare(t, &site{
		db: db, store: sqlstore.Postgres(db), rewind: rewindPostgres,
		empty: []string{"TRUNCATE waybill_receive.event, waybill_receive.other_body, waybill_receive.version, effect"},
		bind: func(sql string) string {
			out, n := "", 0
			for _, c := range sql {
				if c == '?' {
					n++
					out += fmt.Sprint("$", n)
					continue
				}
				out += string(c)
			}
			return out
		},
	})
}

// both runs a test on either database.
func both(t *testing.T, test func(t *testing.T, s *site)) {
	t.Run("SQLite", func(t *testing.T) { test(t, lite(t, "WAL", "FULL")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres(t)) })
}

func TestStore_keepsTheContract(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		t.Run("claims", func(t *testing.T) {
			receivetest.TestClaimStore(t, func(t *testing.T) (receive.ClaimStore, func(time.Duration)) { return s.emptied(t) })
		})
		t.Run("inbox", func(t *testing.T) {
			receivetest.TestInboxStore(t, func(t *testing.T) (receive.InboxStore, func(time.Duration)) { return s.emptied(t) })
		})
	})
}

func TestStore_bearsTheScenarios(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		receivetest.TestReceivers(t, func(t *testing.T) receivetest.Bench {
			store, advance := s.emptied(t)
			return receivetest.Bench{
				Claims: store, Inbox: store, Advance: advance, Wipe: func() { s.emptied(t) },
				Tx: store.InTx(s.insert),
				Effects: func() (n int) {
					if err := s.db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT count(*) FROM effect").Scan(&n); err != nil {
						t.Error(err)
					}
					return n
				},
				Newer: func(object string, v receive.Version) bool { return apply(t, s, object, v) },
			}
		})
	})
}

func claim(t *testing.T, s *site, id string) (*receive.Delivery, receive.Found) {
	t.Helper()
	r := receivetest.NewRecord("billing", id, "{}")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	f, err := s.store.Claim(ctx, &r, receive.NewToken(), lease)
	if err != nil {
		t.Fatal(err)
	}
	c := f.Claim
	if c == nil {
		c = &receive.Claim{Key: r.Key, Token: receive.NewToken()}
	}
	return receive.NewDelivery("stripe", &r, c, time.Hour), f
}

func degraded(id string) *receive.Delivery {
	r := receivetest.NewRecord("billing", id, "{}")
	return receive.NewDelivery("stripe", &r, &receive.Claim{Key: r.Key, Token: receive.NewToken()}, time.Hour)
}

func (s *site) settle(t *testing.T, d *receive.Delivery, state receive.State) {
	t.Helper()
	if err := s.store.Settle(t.Context(), d.Claim(), receive.Outcome{State: state, Retain: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// insert is a handler's effect.
func (s *site) insert(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
	_, err := tx.ExecContext(ctx, s.bind("INSERT INTO effect (id, fence) VALUES (?, ?)"), d.ID, d.Fence)
	return err
}

func (s *site) effects(t *testing.T, id string) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), s.bind("SELECT count(*) FROM effect WHERE id = ?"), id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInTx_effectAndDoneAreOne(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		d, _ := claim(t, s, "evt_1")
		if err := s.store.InTx(s.insert)(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if _, f := claim(t, s, "evt_1"); f.State != receive.Done || s.effects(t, "evt_1") != 1 {
			t.Errorf("%v with %d effects", f.State, s.effects(t, "evt_1"))
		}
		// A handler that fails leaves neither.
		wrong := errors.New("no")
		d, _ = claim(t, s, "evt_2")
		err := s.store.InTx(func(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
			return errors.Join(s.insert(ctx, tx, d), wrong)
		})(t.Context(), d)
		if _, f := claim(t, s, "evt_2"); !errors.Is(err, wrong) || f.State != receive.Held || s.effects(t, "evt_2") != 0 {
			t.Errorf("%v, %v with %d effects", err, f.State, s.effects(t, "evt_2"))
		}
	})
}

// A claim must not wait for somebody's transaction.
func TestClaim_doesNotWaitForARowThatATransactionHasLocked(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		d, _ := claim(t, s, "evt_1")
		err := s.store.InTx(func(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
			if err := s.insert(ctx, tx, d); err != nil {
				return err
			}
			if err := s.store.ConfirmTx(ctx, tx, d); err != nil {
				return err
			}
			if _, f := claim(t, s, "evt_1"); f.State != receive.Held || f.Claim != nil {
				t.Errorf("a row being confirmed is %v", f.State)
			}
			return nil
		})(t.Context(), d)
		if !errors.Is(err, receive.ErrLeaseLost) {
			t.Errorf("confirmed twice in one transaction: %v", err)
		}
	})
}

// A degraded run that confirms takes what is free, and nothing that another run has.
func TestConfirmTx_ofADegradedRun(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		advance := s.advance(t)
		for name, test := range map[string]struct {
			prepare func(id string)
			want    error
		}{
			"nobody has seen it":    {func(string) {}, nil},
			"a run failed":          {func(id string) { d, _ := claim(t, s, id); s.settle(t, d, receive.Free) }, nil},
			"a run's lease is over": {func(id string) { claim(t, s, id); advance(2 * lease) }, nil},
			"a run has it":          {func(id string) { claim(t, s, id) }, receive.ErrLeaseLost},
			"it is done":            {func(id string) { d, _ := claim(t, s, id); s.settle(t, d, receive.Done) }, receive.ErrLeaseLost},
		} {
			id := "evt " + name
			test.prepare(id)
			err := s.store.InTx(s.insert)(t.Context(), degraded(id))
			if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			if got, want := s.effects(t, id), map[bool]int{true: 1, false: 0}[test.want == nil]; got != want {
				t.Errorf("%s: %d effects, want %d", name, got, want)
			}
		}
	})
}

// Many runs of one event at once: one effect.
func TestInTx_ofManyRunsOneHasAnEffect(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if d, f := claim(t, s, "evt_1"); f.Claim != nil {
					if err := s.store.InTx(s.insert)(t.Context(), d); err != nil {
						t.Error(err)
					}
				}
			})
			group.Go(func() {
				err := s.store.InTx(s.insert)(t.Context(), degraded("evt_1"))
				if err != nil && !errors.Is(err, receive.ErrLeaseLost) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := s.effects(t, "evt_1"); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// Whatever order the versions arrive in, the newest stays, and older ones are counted.
func TestNewer_inEveryOrder(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		versions := []receive.Version{{At: 100, Tie: "evt_a"}, {At: 101, Tie: "evt_B"}, {At: 101, Tie: "evt_a"}} // B before a, as bytes
		for n, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			object := fmt.Sprint("sub_", n)
			best, stale := -1, 0
			for _, v := range order {
				newer := apply(t, s, object, versions[v])
				if want := v > best; newer != want {
					t.Errorf("order %v: version %d newer: %v", order, v, newer)
				}
				if newer {
					best = v
				} else {
					stale++
				}
			}
			if best != 2 || apply(t, s, object, versions[2]) {
				t.Errorf("order %v ends with version %d, or a repeat is newer", order, best)
			}
			if got, err := s.store.Stale(t.Context(), object); err != nil || got != int64(stale) {
				t.Errorf("order %v: %d stale (%v), want %d", order, got, err, stale)
			}
		}
	})
}

func apply(t *testing.T, s *site, object string, v receive.Version) bool {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	newer, err := s.store.Newer(t.Context(), tx, object, v)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return newer
}

func TestCheck_saysWhatWouldLose(t *testing.T) {
	for name, test := range map[string]struct {
		site *site
		want []receive.Rule
	}{
		"as it should be":       {lite(t, "WAL", "FULL"), nil},
		"synchronous is NORMAL": {lite(t, "WAL", "NORMAL"), []receive.Rule{receive.NotDurable}},
		"no WAL":                {lite(t, "DELETE", "FULL"), []receive.Rule{receive.Unchecked}},
		"a journal in memory":   {lite(t, "MEMORY", "FULL"), []receive.Rule{receive.NotDurable, receive.Unchecked}},
	} {
		problems, err := test.site.store.Check(t.Context())
		var got []receive.Rule
		for _, p := range problems {
			got = append(got, p.Rule)
		}
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}

// Done before the effects would lose them; so what commits by itself does not fit where a
// transaction is wanted.
func TestConfirmTx_takesNothingButATransaction(t *testing.T) {
	wants := reflect.TypeOf((*sqlstore.Store).ConfirmTx).In(2)
	for _, autocommits := range []reflect.Type{reflect.TypeFor[*sql.DB](), reflect.TypeFor[*sql.Conn]()} {
		if autocommits.AssignableTo(wants) {
			t.Errorf("%v fits", autocommits)
		}
	}
}
