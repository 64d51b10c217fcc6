package outbox

import "math/bits"

// Wakeup is what one node tells the others so that they look now instead of at their next turn.
// Everybody finds the same by looking, a second later at most: a wake-up may come late, twice,
// together with others, or never.
type Wakeup struct {
	// Outbox are shards whose outbox has new rows.
	Outbox ShardSet
	// Nodes says that a node came or gave shards up.
	Nodes bool
}

// IsZero reports whether there is nothing to tell.
func (w Wakeup) IsZero() bool { return w == Wakeup{} }

// And returns both in one.
func (w Wakeup) And(other Wakeup) Wakeup {
	for i := range w.Outbox {
		w.Outbox[i] |= other.Outbox[i]
	}
	w.Nodes = w.Nodes || other.Nodes
	return w
}

// ShardSet is a set of shards, one bit each.
type ShardSet [Shards / 64]uint64

// Add puts a shard into the set.
func (s *ShardSet) Add(shard Shard) { s[shard/64] |= 1 << (shard % 64) }

// Has reports whether the shard is in the set.
func (s *ShardSet) Has(shard Shard) bool { return s[shard/64]&(1<<(shard%64)) != 0 }

// Len counts the shards in the set.
func (s *ShardSet) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}
