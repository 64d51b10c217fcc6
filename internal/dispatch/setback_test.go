package dispatch

import (
	"testing"
	"time"
)

func TestSetback_scheduleGoesOnWhenTheClockIsSetBack(t *testing.T) {
	var s setback
	database, mono := start, start
	expected := database
	beat := func(set time.Duration) {
		mono = mono.Add(time.Second)
		expected = database.Add(time.Second)
		database = expected.Add(set)
		s.note(database, expected, mono)
	}
	beat(-5 * time.Hour) // the first heartbeat corrects a wall clock by which nothing was planned
	beat(time.Second)    // slewed
	if s.ahead != 0 {
		t.Fatalf("ahead by %s, and nobody has set the clock", s.ahead)
	}
	beat(-2 * time.Hour)
	if s.ahead != 2*time.Hour {
		t.Fatalf("ahead by %s after the clock was set back two hours", s.ahead)
	}
	for range 600 { // ten minutes: one is let go
		beat(0)
	}
	if want := 119 * time.Minute; s.ahead != want {
		t.Errorf("ahead by %s after ten minutes, want %s", s.ahead, want)
	}
	beat(3 * time.Hour)
	if s.ahead != 0 {
		t.Errorf("ahead by %s after the clock was set forward beyond where it had been", s.ahead)
	}
}
