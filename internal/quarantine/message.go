package quarantine

import (
	"net/netip"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Settings are how the parent sends, so that its children do likewise.
type Settings struct {
	Policy       egress.Policy
	UserAgent    string // "": the default
	HeaderPrefix string // "": the default
}

// Command is the name of the program's hidden command that calls Serve.
const Command = "quarantine"

// hello says that a child is ready for its order.
type hello struct{ Ready bool }

// order is what a child is to do: exactly one of Attempt and Route is set.
type order struct {
	Allow, AllowInternal    []netip.Prefix
	Ports                   string // as egress.ParsePorts reads them; "": the default
	Schemes                 []string
	Proxy                   string // "": none
	UserAgent, HeaderPrefix string
	Now                     time.Time // database time

	Attempt *attemptOrder
	Route   *routeOrder
}

func (s Settings) order(now time.Time) order {
	proxy := ""
	if s.Policy.Proxy != nil {
		proxy = s.Policy.Proxy.String()
	}
	return order{
		Proxy:         proxy,
		Allow:         s.Policy.Allow,
		AllowInternal: s.Policy.AllowInternal,
		Ports:         s.Policy.Ports.String(),
		Schemes:       s.Policy.Schemes,
		UserAgent:     s.UserAgent,
		HeaderPrefix:  s.HeaderPrefix,
		Now:           now,
	}
}

func (o *order) policy() (egress.Policy, error) {
	p := egress.Policy{Allow: o.Allow, AllowInternal: o.AllowInternal, Schemes: o.Schemes}
	var err error
	if o.Proxy != "" {
		if p.Proxy, err = egress.ParseProxy(o.Proxy); err != nil {
			return p, err
		}
	}
	if o.Ports == "" {
		return p, nil
	}
	p.Ports, err = egress.ParsePorts(o.Ports)
	return p, err
}

// attemptOrder is an attempt.Request, whose target the child makes itself.
type attemptOrder struct {
	Endpoint  attempt.Endpoint
	Event     outbox.EventID
	EventType string
	N         int
	Sequence  int64
	Trigger   outbox.Trigger
	Payload   []byte
	Metadata  map[string]string
}

func (o *attemptOrder) request(target *attempt.Target) attempt.Request {
	return attempt.Request{
		Target:    target,
		Event:     o.Event,
		EventType: o.EventType,
		N:         o.N,
		Sequence:  o.Sequence,
		Trigger:   o.Trigger,
		Payload:   o.Payload,
		Metadata:  o.Metadata,
	}
}

type routeOrder struct {
	Row       outbox.OutboxRow
	Endpoints []outbox.Endpoint // as far as routing looks at them
}

// answer is what came of an order.
type answer struct {
	Outcome attempt.Outcome
	Panic   string // what handling it panicked with; the outcome is void then
}
