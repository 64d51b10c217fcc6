package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/signature"
)

// rawLoad says what a raw process does.
type rawLoad struct {
	Sink     string        `json:"sink"`
	Workers  int           `json:"workers"`
	Duration time.Duration `json:"duration"`
}

type rawResult struct {
	Sent    int64         `json:"sent"`
	Elapsed time.Duration `json:"elapsed"`
}

// measureRaw measures R0: the machine's limit with the product's own client.
func measureRaw(ctx context.Context, s *sinkProcess, d time.Duration) (Figures, error) {
	if err := s.reset(ctx); err != nil {
		return Figures{}, err
	}
	var result rawResult
	if err := runChild(ctx, RoleRaw, rawLoad{Sink: s.url, Workers: 64, Duration: d}, &result); err != nil {
		return Figures{}, err
	}
	stats, err := s.stats(ctx, "raw")
	if err != nil {
		return Figures{}, err
	}
	if stats.Requests != result.Sent {
		return Figures{}, fmt.Errorf("sent %d requests, %d arrived", result.Sent, stats.Requests)
	}
	rate := float64(result.Sent) / result.Elapsed.Seconds()
	return Figures{PerSecond: rate, Ratio: 1, P50: stats.P50, P99: stats.P99}, nil
}

// runRaw sends signed POSTs as fast as it can and stores nothing.
func runRaw(ctx context.Context) error {
	var l rawLoad
	if err := json.NewDecoder(os.Stdin).Decode(&l); err != nil {
		return err
	}
	guard, err := egress.New(egress.Config{Policy: egress.Policy{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}})
	if err != nil {
		return err
	}
	var clock outbox.Clock
	sender := attempt.New(attempt.Config{Guard: guard, Clock: &clock})
	target := sender.Prepare(attempt.Endpoint{
		URL:     l.Sink + "/hook/raw/",
		Secrets: []outbox.Secret{{Value: signature.GenerateSecret()}},
	})
	var sent, failed atomic.Int64
	begin := time.Now()
	end := begin.Add(l.Duration)
	var workers sync.WaitGroup
	for range l.Workers {
		workers.Go(func() {
			var body []byte
			for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
				n := sent.Add(1)
				body = appendPayload(body[:0], n, now)
				out := sender.Do(ctx, attempt.Request{
					Target:    target,
					Event:     outbox.NewEventID(now),
					EventType: "bench.event",
					N:         1,
					Sequence:  n,
					Payload:   body,
				})
				if out.Outcome != outbox.OutcomeDelivered {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d requests failed", n, sent.Load())
	}
	return json.NewEncoder(os.Stdout).Encode(rawResult{sent.Load(), time.Since(begin)})
}
