package outbox

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The codec against arithmetic of its own: base 32 of the 128-bit number.
func TestID_textIsBase32OfTheNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id EventID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		n := new(big.Int).SetBytes(id[:])
		digits := n.Text(32) // 0-9a-v
		want := strings.NewReplacer(
			"i", "j", "j", "k", "k", "m", "l", "n", "m", "p", "n", "q", "o", "r", "p", "s", "q", "t", "r", "v", "s", "w", "t", "x", "u", "y", "v", "z",
		).Replace(digits)
		want = "evt_" + strings.Repeat("0", 26-len(want)) + want
		if got := id.String(); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		back, err := ParseID[eventKind](want)
		if err != nil || back != id {
			t.Fatalf("parse %s: %v, %v", want, back, err)
		}
	})
}

func TestID_parseRefuses(t *testing.T) {
	good := NewEventID(time.Now()).String()
	for name, s := range map[string]string{
		"empty":          "",
		"no prefix":      good[4:],
		"other prefix":   "ep_" + good[4:],
		"short":          good[:len(good)-1],
		"long":           good + "0",
		"upper case":     "evt_" + strings.ToUpper(good[4:]),
		"letter u":       good[:29] + "u",
		"letter o":       good[:29] + "o",
		"above 128 bits": "evt_8" + good[5:],
	} {
		if id, err := ParseID[eventKind](s); err == nil {
			t.Errorf("%s: %q was read as %v", name, s, id)
		}
	}
}

func TestID_carriesTimeVersionAndVariant(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 34, 56, 789e6, time.UTC)
	id := NewEventID(at)
	if !id.Time().Equal(at) {
		t.Errorf("time %v, want %v", id.Time(), at)
	}
	if id[6]>>4 != 7 || id[8]>>6 != 2 {
		t.Errorf("version %x variant %b, want 7 and 10", id[6]>>4, id[8]>>6)
	}
	if want := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC); !id.Day().Equal(want) {
		t.Errorf("day %v, want %v", id.Day(), want)
	}
}

func TestDeliveryID_sortsByTheEventsTimeAndIsDerived(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	event, ep1, ep2 := NewEventID(at), NewEndpointID(at), NewEndpointID(at)
	one := NewDeliveryID(event, ep1)
	if one != NewDeliveryID(event, ep1) {
		t.Error("the same pair gave two ids")
	}
	if one == NewDeliveryID(event, ep2) {
		t.Error("two endpoints share an id")
	}
	if !one.Time().Equal(at) {
		t.Errorf("time %v, want %v", one.Time(), at)
	}
	lo, hi := FloorID[deliveryKind](at), CeilID[deliveryKind](at)
	if one.String() < lo.String() || one.String() > hi.String() {
		t.Errorf("%v outside the range of its millisecond", one)
	}
}

func TestID_beforeIsTheNumberBefore(t *testing.T) {
	for in, want := range map[EventID]EventID{
		{}:             {},
		{15: 1}:        {},
		{15: 7}:        {15: 6},
		{14: 1}:        {15: 0xff},
		{0: 1}:         {1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff, 8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff},
		{3: 2, 15: 99}: {3: 2, 15: 98},
	} {
		if got := in.Before(); got != want {
			t.Errorf("before %x is %x, want %x", in[:], got[:], want[:])
		}
	}
}
