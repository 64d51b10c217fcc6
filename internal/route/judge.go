package route

import (
	"github.com/waybill-dev/waybill/internal/filter"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Judged is what the filters of a tenant's endpoints say about one event. Filters are asked apart
// from planning because a large payload takes its time, and planning holds up everybody.
type Judged struct {
	document *filter.Document
	verdicts map[*filter.Filter]bool
	blind    bool
}

// Unasked is the judgement on an event whose payload must not be looked into any more: everybody
// wants it.
var Unasked = &Judged{blind: true}

// Judge asks the filters of the endpoints that want the event's type; nil where there are none.
func Judge(row outbox.OutboxRow, subscribers Subscribers) *Judged {
	if row.Source == nil || !subscribers.Filter(row.Source.Type) {
		return nil
	}
	j := &Judged{verdicts: map[*filter.Filter]bool{}}
	for _, e := range subscribers {
		if e.filter != nil && e.Matches(row.Source.Type) {
			j.verdicts[e.filter] = j.ask(e.filter, &row)
		}
	}
	return j
}

// wanted reports what a filter says; one that came with the configuration since is asked now.
func (j *Judged) wanted(f *filter.Filter, row *outbox.OutboxRow) bool {
	if j == nil {
		j = &Judged{}
	}
	if verdict, asked := j.verdicts[f]; asked {
		return verdict
	}
	return j.ask(f, row)
}

// ask reads the payload once for all filters. Where there is none, because it was erased, the
// event is wanted: its delivery ends for want of its bytes, where that can be seen.
func (j *Judged) ask(f *filter.Filter, row *outbox.OutboxRow) bool {
	if j.blind || !row.HasPayload {
		return true
	}
	if j.document == nil {
		j.document = filter.Parse(row.Source.Payload)
	}
	return f.Matches(j.document)
}
