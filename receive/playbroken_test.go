package receive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// brokenRules are the 22 rules of the protocol, each broken on purpose, and what must then be seen.
// A play that lets one of them pass proves nothing by finding nothing.
var brokenRules = []struct {
	rule   string
	mode   mode
	breaks func(*receive.Breaks)
	broken brokenStore
	want   []string // one of these
}{
	{"1 held is told done", modes["sync, closed"], receive.HeldIsSuccess, brokenStore{}, early},
	{"2 done before the handler", modes["sync, closed"], receive.DoneFirst, brokenStore{}, early},
	{"3 a store that is down is told done", modes["sync, closed"], receive.DownIsSuccess, brokenStore{}, early},
	{"4 a waiter takes freed for done", modes["sync, closed"], receive.FreedIsSuccess, brokenStore{}, early},
	{"5 permanent without a letter", modes["sync, closed"], receive.NoLetter, brokenStore{}, early},
	{"5 permanent, its letter unanswered", modes["sync, closed"], receive.UnansweredLetter, brokenStore{}, early},
	{"5 permanent, the letter elsewhere second", modes["sync, letters elsewhere"], receive.DoneBeforeLetter, brokenStore{}, early},
	{"6 a hold without an end, Sync", modes["sync, closed"], nil, brokenStore{noLease: true}, []string{"lost", "never-acked"}},
	{"6 a hold without an end, Inbox", modes["inbox"], nil, brokenStore{noLease: true}, lost},
	{"6 a lease renewed for ever", modes["inbox, lease renewed"], receive.UncappedRenewal, brokenStore{}, lost},
	{"7 a lost lease is told done", modes["sync in tx, closed"], receive.LostLeaseIsSuccess, brokenStore{}, early},
	{"8 an unanswered COMMIT is told done", modes["sync in tx, closed"], nil, brokenStore{unansweredCommit: true}, early},
	{"9 confirmed outside of the transaction", modes["sync in tx, closed"], nil, brokenStore{autocommit: true}, early},
	{"9 confirmed outside of the transaction, Inbox", modes["inbox in tx"], nil, brokenStore{autocommit: true}, lost},
	{"10 a handler's nil is believed", modes["sync in tx, closed"], receive.NilBelieved, brokenStore{}, early},
	{"11 an unanswered commit is told stored", modes["inbox"], receive.UnansweredPut, brokenStore{}, early},
	{"12 a repeat known from memory", modes["inbox"], receive.MemoryRepeat, brokenStore{}, early},
	{"13 a store that does not survive its crash", modes["inbox"], nil, brokenStore{volatile: true}, early},
	{"14 a release deletes", modes["inbox"], nil, brokenStore{releaseDeletes: true}, early},
	{"14 retention removes what is not done", modes["inbox"], nil, brokenStore{prunes: true}, early},
	{"15 runs counted when they fail", modes["inbox, poison"], nil, brokenStore{countedAtFailure: true}, lost},
	{"16 nobody runs the worker", mode{inbox: true}, nil, brokenStore{}, lost},
	{"17 no attempt after the lease", mode{permanent: true, finiteSet: true, finite: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}}, nil, brokenStore{}, lost},
	{"18 released by key", modes["sync, closed"], nil, brokenStore{releaseByKey: true}, []string{"overlap", "done-undone"}},
	{"18 released by token in any state", modes["sync in tx, closed"], nil, brokenStore{releaseAnyState: true}, []string{"effects", "done-undone"}},
	{"19 confirmed without a condition", modes["sync in tx, closed"], nil, brokenStore{confirmUnfenced: true}, []string{"effects"}},
	{"19 confirmed by a read", modes["sync in tx, closed"], nil, brokenStore{confirmReads: true}, []string{"effects"}},
	{"20 a degraded run does not confirm", modes["sync in tx, open"], nil, brokenStore{degradedSkips: true}, []string{"effects"}},
	{"20 a degraded run releases by key", modes["sync, open"], nil, brokenStore{degradedByKey: true}, []string{"overlap", "done-undone"}},
	{"21 released at the deadline", modes["sync, closed"], receive.ReleasedAtDeadline, brokenStore{}, []string{"overlap"}},
	{"21 a lease shorter than the deadline", modes["sync, closed"], receive.ShortLease, brokenStore{}, []string{"overlap"}},
	{"21 the clock is not looked at", modes["sync, closed"], receive.NoClockCheck, brokenStore{}, []string{"overlap", "run-after-done"}},
	{"21 the clock is not looked at, Inbox", modes["inbox"], receive.NoClockCheck, brokenStore{}, []string{"overlap", "run-after-done"}},
	{"22 an unanswered claim is a claim", modes["sync, closed"], receive.UnansweredClaim, brokenStore{}, []string{"overlap", "run-after-done"}},
}

var (
	early = []string{"2xx-early", "lost"}
	lost  = []string{"lost"}
)

// patience is how many histories a broken rule may survive. The rarest is seen once in some hundred.
const patience = 20_000

func TestPlay_seesEveryBrokenRule(t *testing.T) {
	for _, b := range brokenRules {
		t.Run(b.rule, func(t *testing.T) {
			t.Parallel()
			m := b.mode
			m.breaks, m.broken = b.breaks, b.broken
			for seed := range patience {
				for what := range play(t, m, uint64(seed)) {
					if slices.Contains(b.want, what) {
						t.Logf("seen in history %d: %s", seed, what)
						return
					}
				}
			}
			t.Errorf("%d histories saw nothing", patience)
		})
	}
}
