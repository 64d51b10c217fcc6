package dispatch

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// maxJudgedBytes bounds the payloads that one round of routing reads for filters.
const maxJudgedBytes = 32 << 20

// judge asks the filters of the endpoints that the rows may be planned for, without the lock. It
// returns the rows to be planned now, those whose payload it read among them; the rest it has put
// back. Where no endpoint has a filter it costs a look at each row's tenant.
func (n *Node) judge(ctx context.Context, rows []outbox.OutboxRow) ([]outbox.OutboxRow, map[int64]*route.Judged, error) {
	looked := make([]route.Subscribers, len(rows))
	judged := map[int64]*route.Judged{}
	some := false
	n.mu.Lock()
	for i := range rows {
		if s := n.directory.filtered(rows[i].Tenant); s != nil && rows[i].Source != nil && s.Filter(rows[i].Source.Type) {
			some = true
			if n.rows.condemned(rows[i].Pos) {
				judged[rows[i].Pos] = route.Unasked // looking into it has ended three processes
			} else {
				looked[i] = s
			}
		}
	}
	n.mu.Unlock()
	if !some {
		return rows, nil, nil
	}
	var size int
	for i := range rows {
		if looked[i] == nil {
			continue
		}
		if size >= maxJudgedBytes {
			n.putBack(rows[i:])
			n.wakeRouters()
			return rows[:i], judged, nil
		}
		if !rows[i].HasPayload {
			// It did not fit when its row was read; alone it does, unless it was erased.
			if err := n.cfg.Store.ReadEvents(ctx, rows[i:i+1], 2*outbox.HardMaxPayload); err != nil {
				n.putBack(rows)
				return nil, nil, err
			}
			if rows[i].HasPayload {
				size += len(rows[i].Source.Payload)
			}
		}
		judged[rows[i].Pos] = route.Judge(rows[i], looked[i])
	}
	return rows, judged, nil
}
