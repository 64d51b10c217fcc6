package receivetest_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

func TestStore_isAClaimStore(t *testing.T) {
	receivetest.TestClaimStore(t, func(*testing.T) (receive.ClaimStore, func(time.Duration)) {
		s := receivetest.NewStore()
		return s, s.Advance
	})
}

func TestStore_isAnInboxStore(t *testing.T) {
	receivetest.TestInboxStore(t, func(*testing.T) (receive.InboxStore, func(time.Duration)) {
		s := receivetest.NewStore()
		return s, s.Advance
	})
}

func TestStore_bearsTheScenarios(t *testing.T) {
	receivetest.TestReceivers(t, func(*testing.T) receivetest.Bench {
		s := receivetest.NewStore()
		return receivetest.Bench{Claims: s, Inbox: s, Advance: s.Advance, Wipe: s.Wipe}
	})
}
