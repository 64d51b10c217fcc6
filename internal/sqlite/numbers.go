package sqlite

import (
	"encoding/binary"
	"fmt"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// numbers proves that every number an endpoint's deliveries were given, from the first that is
// surely still kept to the last, belongs to exactly one of them.
//
// Retention deletes what was delivered long ago and leaves what still waits, so the oldest
// numbers have gaps. Numbers are given in the order of planning; all from that of the first event
// younger than retention on must be there.
func (p *proof) numbers() error {
	retired, err := p.retiredBefore()
	if err != nil {
		return err
	}
	kept := dayStart(retired)
	if retired > 0 {
		kept = kept.Add(outbox.ChosenIDFuture) // an event may carry a time a little after its planning
	}
	ends, err := p.ends()
	if err != nil {
		return err
	}
	seen := map[outbox.EndpointID]*numbering{}
	for _, query := range []string{
		"SELECT endpoint, sequence, dlv FROM waybill_delivery",
		"SELECT endpoint, sequence, dlv FROM waybill_dead_letter",
		"SELECT endpoint, sequence, dlv FROM waybill_attempt WHERE final = 1",
	} {
		if err := p.session.eachOnce(p.ctx, query, nil, func(scan scan) error {
			var endpoint outbox.EndpointID
			var number int64
			var dlv outbox.DeliveryID
			if err := scan(idTo{(*[16]byte)(&endpoint)}, &number, idTo{(*[16]byte)(&dlv)}); err != nil {
				return err
			}
			if seen[endpoint] == nil {
				seen[endpoint] = &numbering{of: map[int64]uint64{}}
			}
			seen[endpoint].add(number, dlv, !dlv.Time().Before(kept))
			return nil
		}); err != nil {
			return err
		}
	}
	check := outbox.Check{Name: "every number belongs to one delivery"}
	for id, next := range ends {
		n := seen[id]
		if n == nil {
			n = &numbering{}
		}
		if retired == 0 {
			n.first = 1
		}
		n.judge(&check, id, next)
		delete(seen, id)
	}
	for id, n := range seen {
		n.judge(&check, id, 1)
	}
	p.report.Checks = append(p.report.Checks, check)
	return nil
}

// ends reads the next number of every endpoint.
func (p *proof) ends() (map[outbox.EndpointID]int64, error) {
	ends := map[outbox.EndpointID]int64{}
	err := p.session.eachOnce(p.ctx, "SELECT endpoint, next FROM waybill_mark", nil, func(scan scan) error {
		var id outbox.EndpointID
		var next int64
		err := scan(idTo{(*[16]byte)(&id)}, &next)
		ends[id] = next
		return err
	})
	return ends, err
}

// numbering is what was found of one endpoint's numbers.
type numbering struct {
	of      map[int64]uint64 // number: eight of the random bytes of the delivery that has it
	first   int64            // the lowest of a kept event; 0: none
	doubles []int64
}

func (n *numbering) add(number int64, dlv outbox.DeliveryID, kept bool) {
	who := binary.BigEndian.Uint64(dlv[8:])
	if before, ok := n.of[number]; ok && before != who {
		n.doubles = append(n.doubles, number)
	}
	n.of[number] = who
	if kept && (n.first == 0 || number < n.first) {
		n.first = number
	}
}

// maxNamed is how many wrong numbers of an endpoint are listed.
const maxNamed = 100

func (n *numbering) judge(check *outbox.Check, id outbox.EndpointID, next int64) {
	named := 0
	note := func(number, found int64) {
		if named++; named <= maxNamed {
			check.Broken = append(check.Broken, outbox.Imbalance{
				Where: fmt.Sprintf("endpoint %s, number %d", id, number),
				Left:  1,
				Right: found,
			})
		}
	}
	for _, number := range n.doubles {
		note(number, 2)
	}
	if n.first > 0 {
		for number := n.first; number < next && named < maxNamed; number++ {
			if _, ok := n.of[number]; !ok {
				note(number, 0)
			}
		}
	}
	for number := range n.of {
		if number >= next {
			note(number, 0) // never given
		}
	}
}
