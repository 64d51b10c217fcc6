package replay

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// maxJudgedBytes bounds the payloads read for filters at once.
const maxJudgedBytes = 8 << 20

// MissingStore is what finding what is missing needs of the database.
type MissingStore interface {
	ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error
	DeliveriesOf(ctx context.Context, tenant outbox.TenantRef, ids []outbox.DeliveryID) (map[outbox.DeliveryID]bool, error)
}

// Missing returns what of a page of events was never planned for subscribers that want it today,
// without numbers.
func Missing(ctx context.Context, store MissingStore, job *outbox.Job, page outbox.MissingPage, subscribers route.Subscribers, now time.Time) ([]outbox.Delivery, error) {
	rows := make([]outbox.OutboxRow, len(page.Events))
	for i := range page.Events {
		e := &page.Events[i]
		rows[i] = outbox.OutboxRow{Shard: job.Tenant.Shard, Tenant: job.Tenant.ID, Event: e.ID, Source: e}
	}
	var wanted []outbox.Delivery
	for len(rows) > 0 {
		n := len(rows)
		if subscribers.Filter(rows[0].Source.Type) {
			if err := store.ReadEvents(ctx, rows, maxJudgedBytes); err != nil {
				return nil, err
			}
		}
		for i := range rows {
			row := rows[i]
			if i > 0 && !row.HasPayload && row.Source != nil && subscribers.Filter(row.Source.Type) {
				n = i // it is read in the next round, as its first
				break
			}
			wanted = append(wanted, route.Missing(row, subscribers, route.Judge(row, subscribers), &job.Filter, now)...)
		}
		rows = rows[n:]
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	ids := make([]outbox.DeliveryID, len(wanted))
	for i := range wanted {
		ids[i] = wanted[i].ID
	}
	known, err := store.DeliveriesOf(ctx, job.Tenant, ids)
	if err != nil {
		return nil, err
	}
	missing := wanted[:0]
	for _, d := range wanted {
		if !known[d.ID] {
			missing = append(missing, d)
		}
	}
	return missing, nil
}
