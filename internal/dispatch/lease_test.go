package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTenure_endsFourSecondsAfterTheLastBeatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tn tenure
		if _, may := tn.current(); may {
			t.Fatal("may act before the first heartbeat")
		}
		tn.extend(time.Now())
		ctx, may := tn.current()
		if !may {
			t.Fatal("may not act after a heartbeat")
		}
		for range 10 {
			time.Sleep(time.Second)
			tn.extend(time.Now())
		}
		if ctx.Err() != nil {
			t.Fatal("the context ended though the heart was beating")
		}
		time.Sleep(leaseFor - time.Nanosecond)
		if _, may := tn.current(); !may || ctx.Err() != nil {
			t.Fatal("ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, may := tn.current(); may {
			t.Fatal("may still act")
		}
		if !errors.Is(context.Cause(ctx), errLeaseOver) {
			t.Fatalf("cause %v", context.Cause(ctx))
		}
		// A heartbeat that took longer than the lease buys nothing.
		tn.extend(time.Now().Add(-leaseFor))
		if _, may := tn.current(); may {
			t.Fatal("acts on a heartbeat that was sent too long ago")
		}
		tn.extend(time.Now())
		if again, may := tn.current(); !may || again.Err() != nil {
			t.Fatal("a new heartbeat does not begin a new tenure")
		}
		tn.cut()
	})
}
