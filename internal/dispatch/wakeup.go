package dispatch

import "github.com/waybill-dev/waybill/internal/outbox"

// Wake tells the other nodes of something they would find by themselves, a second later at most.
type Wake interface {
	// Wake does not block. What it is told may be told late, with other things, or never.
	Wake(up outbox.Wakeup)
}

// nobody is there to be woken.
type nobody struct{}

func (nobody) Wake(outbox.Wakeup) {}

// Offer hands over outbox rows that this process has just committed, so that they need not be
// read back. Rows of shards the node does not own are left to their owners, who are woken, and rows
// for which there is no room to the refill.
func (n *Node) Offer(rows []outbox.OutboxRow) {
	var elsewhere outbox.Wakeup
	n.mu.Lock()
	added := false
	for _, row := range rows {
		if _, mine := n.lease.Epochs[row.Shard]; !mine {
			elsewhere.Outbox.Add(row.Shard)
		} else if n.admit(row) {
			added = true
		}
	}
	n.mu.Unlock()
	if added {
		n.wakeRouters()
	}
	if !elsewhere.IsZero() {
		n.cfg.Wake.Wake(elsewhere)
	}
}

// Wrote makes the owner of a shard look into its outbox now: this process has just written to it.
func (n *Node) Wrote(shard outbox.Shard) {
	n.mu.Lock()
	_, mine := n.lease.Epochs[shard]
	n.mu.Unlock()
	if mine {
		wake(n.pollNow)
		return
	}
	var up outbox.Wakeup
	up.Outbox.Add(shard)
	n.cfg.Wake.Wake(up)
}

// Woken acts on what another node told.
func (n *Node) Woken(up outbox.Wakeup) {
	if up.Nodes {
		wake(n.beatNow)
	}
	n.mu.Lock()
	mine := false
	for shard := range n.lease.Epochs {
		if mine = up.Outbox.Has(shard); mine {
			break
		}
	}
	n.mu.Unlock()
	if mine {
		wake(n.pollNow)
	}
}

// turn is a mutex for what takes as long as the database does. Unlike sync.Mutex it lets a
// simulation's time pass for those who wait.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits for the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it up.
func (t turn) Unlock() { <-t }
