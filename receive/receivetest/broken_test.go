package receivetest

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// recorder is a test that may fail without failing the one it is part of.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Fatal(...any)          { r.failed.Store(true); runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed.Store(true); runtime.Goexit() }

// broken lists the promises that a store breaks.
func broken(t *testing.T, wrap func(receive.ClaimStore) receive.ClaimStore) (says []string) {
	t.Helper()
	for _, p := range claimPromises {
		good := NewStore()
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.test(&claims{r, wrap(good), good.Advance})
		}()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not end", p.says)
		}
		if r.failed.Load() {
			says = append(says, p.says)
		}
	}
	return says
}

func TestTestClaimStore_noticesEveryBrokenStore(t *testing.T) {
	for name, wrap := range Broken() {
		t.Run(name, func(t *testing.T) {
			says := broken(t, wrap)
			if len(says) == 0 {
				t.Error("the suite passes it")
			}
			t.Logf("%q", says)
		})
	}
	if says := broken(t, func(s receive.ClaimStore) receive.ClaimStore { return s }); len(says) > 0 {
		t.Errorf("a good store breaks %q", says)
	}
}

// brokenIn lists the promises that an inbox store breaks.
func brokenIn(t *testing.T, wrap func(receive.InboxStore) receive.InboxStore) (says []string) {
	t.Helper()
	for _, p := range inboxPromises {
		good := NewStore()
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.test(&inbox{r, wrap(good), good.Advance})
		}()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not end", p.says)
		}
		if r.failed.Load() {
			says = append(says, p.says)
		}
	}
	return says
}

func TestTestInboxStore_noticesEveryBrokenStore(t *testing.T) {
	for name, wrap := range BrokenInboxes() {
		t.Run(name, func(t *testing.T) {
			says := brokenIn(t, wrap)
			if len(says) == 0 {
				t.Error("the suite passes it")
			}
			t.Logf("%q", says)
		})
	}
	if says := brokenIn(t, func(s receive.InboxStore) receive.InboxStore { return s }); len(says) > 0 {
		t.Errorf("a good store breaks %q", says)
	}
}

// The scenarios are about what receivers do; with a store that breaks a promise which keeps events
// from being lost or repeated, they go wrong.
func TestTestReceivers_goesWrongOnBrokenStores(t *testing.T) {
	all := Broken()
	for name, scenarios := range map[string][]string{
		"grants what is held":          {"08"},
		"never ends a lease":           {"01"},
		"ends every lease at once":     {"08"},
		"keys on the id alone":         {"18"},
		"does not know its own token":  {"10"},
		"settles for whoever asks":     {"05"},
		"says yes to an overtaken run": {"05"},
		"forgets at once what is done": {"03"},
		"never forgets what is done":   {"19"},
		"does not see another body":    {"20"},
		"does not count runs":          {"02"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range scenarioList(scenarios) {
				good := NewStore()
				r := &recorder{TB: t}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					played := newStage(r, Bench{Claims: all[name](good), Advance: good.Advance, Wipe: good.Wipe})
					played.patience = 500 * time.Millisecond // it is to go wrong
					s.sync(played)
				}()
				select {
				case <-ended:
				case <-time.After(2 * stagePatience):
					t.Fatalf("%s does not end", s.says)
				}
				if !r.failed.Load() {
					t.Errorf("%s goes well", s.says)
				}
			}
		})
	}
}

func scenarioList(numbers []string) (list []scenario) {
	for _, s := range scenarios {
		if slices.Contains(numbers, s.says[:2]) {
			list = append(list, s)
		}
	}
	return list
}
