package memstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

func TestStore_isAClaimStore(t *testing.T) {
	receivetest.TestClaimStore(t, func(*testing.T) (receive.ClaimStore, func(time.Duration)) {
		s := New(1000)
		var skew time.Duration
		s.now = func() time.Time { return time.Now().Add(skew) }
		return s, func(d time.Duration) { skew += d }
	})
}

func TestStore_bearsTheScenarios(t *testing.T) {
	receivetest.TestReceivers(t, func(*testing.T) receivetest.Bench {
		s := New(1000)
		var mu sync.Mutex
		var skew time.Duration
		s.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(skew)
		}
		advance := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			skew += d
		}
		return receivetest.Bench{Claims: s, Advance: advance}
	})
}

func TestStore_forgetsTheFinishedAndNeverALiveRun(t *testing.T) {
	s := New(3)
	claim := func(id string) (receive.Found, error) {
		r := receivetest.NewRecord("billing", id, "{}")
		return s.Claim(t.Context(), &r, receive.NewToken(), time.Hour)
	}
	var first *receive.Claim
	for i := range 3 {
		f, err := claim(fmt.Sprint("evt_", i))
		if err != nil || f.Claim == nil {
			t.Fatal(f, err)
		}
		if i == 1 {
			first = f.Claim
		}
	}
	if f, err := claim("evt_3"); err == nil {
		t.Fatalf("a fourth live run was let in: %+v", f)
	}
	if err := s.Settle(t.Context(), first, receive.Outcome{State: receive.Done, Retain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if f, err := claim("evt_3"); err != nil || f.Claim == nil {
		t.Fatal(f, err)
	}
	for _, id := range []string{"evt_0", "evt_2", "evt_3"} {
		if f, err := claim(id); err != nil || f.State != receive.Held || f.Claim != nil {
			t.Errorf("%s: %+v, %v: its live run was forgotten", id, f, err)
		}
	}
}
