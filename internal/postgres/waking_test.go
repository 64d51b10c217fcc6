package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// Two nodes on one database hear each other, and a thousand wake-ups at once are few NOTIFYs.
func TestWaker_tellsOtherNodes(t *testing.T) {
	dsn := pgtest.DSN(t)
	teller, _ := waker(t, dsn)
	_, heard := waker(t, dsn)

	until(t, teller, heard, outbox.Wakeup{Nodes: true}) // both connections stand
	for range 1000 {
		for shard := range outbox.Shard(200) {
			var up outbox.Wakeup
			up.Outbox.Add(shard)
			teller.Wake(up)
		}
	}
	var all outbox.Wakeup
	times := 0
	for deadline := time.After(30 * time.Second); all.Outbox.Len() < 200; times++ {
		select {
		case up := <-heard:
			all = all.And(up)
		case <-deadline:
			t.Fatalf("heard of %d shards, told of 200", all.Outbox.Len())
		}
	}
	if all.Outbox.Has(200) {
		t.Error("heard of a shard that nobody told of")
	}
	if times > 50 {
		t.Errorf("%d NOTIFYs for what was told within some milliseconds", times)
	}
}

// waker starts a waker on a store of its own, and returns what it hears.
func waker(t *testing.T, dsn string) (*postgres.Waker, <-chan outbox.Wakeup) {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.NewWaker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan outbox.Wakeup, 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func(up outbox.Wakeup) { heard <- up })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		w.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w, heard
}

// until tells the same again and again until it is heard.
func until(t *testing.T, teller *postgres.Waker, heard <-chan outbox.Wakeup, up outbox.Wakeup) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case <-again.C:
			teller.Wake(up)
		case got := <-heard:
			if got != up {
				t.Fatalf("heard %+v, told %+v", got, up)
			}
			return
		case <-deadline:
			t.Fatal("nothing is heard")
		}
	}
}
