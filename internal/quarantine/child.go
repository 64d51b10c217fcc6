package quarantine

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/poison"
	"github.com/waybill-dev/waybill/internal/route"
)

// Serve is the child's whole life: it takes one order from in and gives one answer to out. It
// ends the process when in ends early, which means that the parent is gone: nobody would record
// what it still does.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := gob.NewEncoder(out)
	if err := answers.Encode(hello{true}); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	var o order
	orders := gob.NewDecoder(in)
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("quarantine: no order: %w", err)
	}
	go func() {
		_ = orders.Decode(new(order)) // nothing more comes; this returns when the pipe is closed
		os.Exit(1)
	}()
	a, err := o.carryOut(ctx)
	if err != nil {
		return err
	}
	if err := answers.Encode(a); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	return nil
}

// carryOut does what is asked. A panic is no death: the parent counts it as it would its own.
func (o *order) carryOut(ctx context.Context) (a answer, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			a.Panic = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		}
	}()
	if o.Route != nil {
		o.Route.carryOut(o.Now)
		return a, nil
	}
	policy, err := o.policy()
	if err != nil {
		return a, fmt.Errorf("quarantine: ports: %w", err)
	}
	guard, err := egress.New(egress.Config{Policy: policy})
	if err != nil {
		return a, fmt.Errorf("quarantine: %w", err)
	}
	defer guard.Close()
	var clock outbox.Clock
	clock.Set(o.Now, time.Now())
	sender := attempt.New(attempt.Config{Guard: guard, Clock: &clock, UserAgent: o.UserAgent, HeaderPrefix: o.HeaderPrefix})
	a.Outcome = sender.Do(ctx, o.Attempt.request(sender.Prepare(o.Attempt.Endpoint)))
	return a, nil
}

// carryOut does what routing does with a row, short of writing: the parent routes what the child
// survived.
func (o *routeOrder) carryOut(now time.Time) {
	if o.Row.HasPayload {
		poison.Routed(o.Row.Source.Payload)
	}
	endpoints := make([]*outbox.Endpoint, len(o.Endpoints))
	for i := range o.Endpoints {
		endpoints[i] = &o.Endpoints[i]
	}
	subscribers := route.NewSubscribers(endpoints)
	route.Event(o.Row, subscribers, route.Judge(o.Row, subscribers), unnumbered{}, route.MaxDeliveries, now)
}

// unnumbered numbers what is planned and thrown away.
type unnumbered struct{}

func (unnumbered) Next(outbox.EndpointID) int64 { return 1 }
