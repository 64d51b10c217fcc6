package receivetest

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// BrokenInboxes are inbox stores with one fault each, by name. A suite that passes one of them is no
// suite.
//
// Each wraps a good store, which it may only be given for itself.
func BrokenInboxes() map[string]func(receive.InboxStore) receive.InboxStore {
	type fault = func(b *brokenInbox)
	faults := map[string]fault{
		"stores the first of a batch only": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				found, err := b.InboxStore.Put(ctx, records[:1])
				for range len(records) - 1 {
					found = append(found, receive.Found{New: true})
				}
				return found, err
			}
		},
		"takes a repeat for a new event": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				found, err := b.InboxStore.Put(ctx, records)
				for i := range found {
					found[i].New = true
				}
				return found, err
			}
		},
		"stores a repeat as an event of its own": func(b *brokenInbox) {
			n := 0
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				records = slices.Clone(records)
				b.mu.Lock()
				for i := range records {
					n++
					records[i].Key.Index += 1000 * n
				}
				b.mu.Unlock()
				return b.InboxStore.Put(ctx, records)
			}
		},
		"trims bodies": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				records = slices.Clone(records)
				for i, r := range records {
					if n := len(r.Body); n > 0 && r.Body[n-1] == '\n' {
						records[i].Body = r.Body[:n-1]
					}
				}
				return b.InboxStore.Put(ctx, records)
			}
		},
		"forgets headers": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				records = slices.Clone(records)
				for i := range records {
					records[i].Header = nil
				}
				return b.InboxStore.Put(ctx, records)
			}
		},
		"does not see another body": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				found, err := b.InboxStore.Put(ctx, records)
				for i := range found {
					found[i].OtherBody = false
				}
				return found, err
			}
		},
		"does not say in which state a repeat is": func(b *brokenInbox) {
			b.put = func(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
				found, err := b.InboxStore.Put(ctx, records)
				for i := range found {
					found[i].State = receive.Free
				}
				return found, err
			}
		},
		"gives what others hold": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, _ time.Duration) ([]receive.Taken, error) {
				return b.InboxStore.Take(ctx, source, n, 0)
			}
		},
		"never ends a lease": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, _ time.Duration) ([]receive.Taken, error) {
				return b.InboxStore.Take(ctx, source, n, 1000*time.Hour)
			}
		},
		"gives more than was asked for": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				return b.InboxStore.Take(ctx, source, n+5, lease)
			}
		},
		"gives the youngest first": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				taken, err := b.InboxStore.Take(ctx, source, n, lease)
				slices.Reverse(taken)
				return taken, err
			}
		},
		"does not count runs": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				taken, err := b.InboxStore.Take(ctx, source, n, lease)
				for i := range taken {
					taken[i].Claim.Run = 1
				}
				return taken, err
			}
		},
		"does not count crashes": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				taken, err := b.InboxStore.Take(ctx, source, n, lease)
				for i := range taken {
					taken[i].Claim.Crashes = 0
				}
				return taken, err
			}
		},
		"does not raise the fence": func(b *brokenInbox) {
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				taken, err := b.InboxStore.Take(ctx, source, n, lease)
				for i := range taken {
					taken[i].Claim.Fence = 1
				}
				return taken, err
			}
		},
		"extends nothing": func(b *brokenInbox) {
			b.extend = func(context.Context, *receive.Claim, time.Duration) error { return nil }
		},
		"extends for whoever asks": func(b *brokenInbox) {
			b.extend = func(ctx context.Context, c *receive.Claim, lease time.Duration) error {
				_ = b.InboxStore.Extend(ctx, c, lease)
				return nil
			}
		},
		"frees at once what is to wait": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.After = 0
				return b.InboxStore.Settle(ctx, c, o)
			}
		},
		"says yes to an overtaken run": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				_ = b.InboxStore.Settle(ctx, c, o)
				return nil
			}
		},
		"settles for whoever asks": func(b *brokenInbox) {
			held := map[receive.Key]receive.Token{}
			b.take = func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
				taken, err := b.InboxStore.Take(ctx, source, n, lease)
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, t := range taken {
					held[t.Record.Key] = t.Claim.Token
				}
				return taken, err
			}
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				b.mu.Lock()
				mine := *c
				if token, known := held[c.Key]; known {
					mine.Token = token
				}
				b.mu.Unlock()
				return b.InboxStore.Settle(ctx, &mine, o)
			}
		},
		"frees a dead letter": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				if o.State == receive.Dead {
					o.State = receive.Free
				}
				return b.InboxStore.Settle(ctx, c, o)
			}
		},
		"forgets why": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Reason = ""
				return b.InboxStore.Settle(ctx, c, o)
			}
		},
		"forgets at once what is done": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Retain = 0
				return b.InboxStore.Settle(ctx, c, o)
			}
		},
		"never forgets what is done": func(b *brokenInbox) {
			b.settle = func(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Retain = 100_000 * time.Hour
				return b.InboxStore.Settle(ctx, c, o)
			}
		},
		"shows everybody's letters": func(b *brokenInbox) {
			b.letters = func(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
				if source != "billing" {
					source = "billing"
				}
				return b.InboxStore.Letters(ctx, source)
			}
		},
		"revives what is not finished": func(b *brokenInbox) {
			b.revive = func(ctx context.Context, key receive.Key) error {
				_ = b.InboxStore.Revive(ctx, key)
				return nil
			}
		},
		"revives nothing": func(b *brokenInbox) {
			b.revive = func(context.Context, receive.Key) error { return nil }
		},
		"buries nothing": func(b *brokenInbox) {
			b.bury = func(context.Context, *receive.Record, string) error { return nil }
		},
		"prunes what is not finished": func(b *brokenInbox) { b.prune = b.lose },
	}
	all := map[string]func(receive.InboxStore) receive.InboxStore{}
	for name, set := range faults {
		all[name] = func(s receive.InboxStore) receive.InboxStore {
			b := &brokenInbox{InboxStore: s}
			set(b)
			return b
		}
	}
	return all
}

// brokenInbox is a good store in the hands of somebody careless.
type brokenInbox struct {
	receive.InboxStore
	mu sync.Mutex

	put     func(ctx context.Context, records []receive.Record) ([]receive.Found, error)
	take    func(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error)
	extend  func(ctx context.Context, c *receive.Claim, lease time.Duration) error
	settle  func(ctx context.Context, c *receive.Claim, o receive.Outcome) error
	bury    func(ctx context.Context, r *receive.Record, reason string) error
	letters func(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error]
	revive  func(ctx context.Context, key receive.Key) error
	prune   func(ctx context.Context) (int, error)
}

// Put is the good store's, or the careless one.
func (b *brokenInbox) Put(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
	if b.put != nil {
		return b.put(ctx, records)
	}
	return b.InboxStore.Put(ctx, records)
}

// Take is the good store's, or the careless one.
func (b *brokenInbox) Take(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
	if b.take != nil {
		return b.take(ctx, source, n, lease)
	}
	return b.InboxStore.Take(ctx, source, n, lease)
}

// Extend is the good store's, or the careless one.
func (b *brokenInbox) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	if b.extend != nil {
		return b.extend(ctx, c, lease)
	}
	return b.InboxStore.Extend(ctx, c, lease)
}

// Settle is the good store's, or the careless one.
func (b *brokenInbox) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if b.settle != nil {
		return b.settle(ctx, c, o)
	}
	return b.InboxStore.Settle(ctx, c, o)
}

// Bury is the good store's, or the careless one.
func (b *brokenInbox) Bury(ctx context.Context, r *receive.Record, reason string) error {
	if b.bury != nil {
		return b.bury(ctx, r, reason)
	}
	return b.InboxStore.Bury(ctx, r, reason)
}

// Letters is the good store's, or the careless one.
func (b *brokenInbox) Letters(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
	if b.letters != nil {
		return b.letters(ctx, source)
	}
	return b.InboxStore.Letters(ctx, source)
}

// Revive is the good store's, or the careless one.
func (b *brokenInbox) Revive(ctx context.Context, key receive.Key) error {
	if b.revive != nil {
		return b.revive(ctx, key)
	}
	return b.InboxStore.Revive(ctx, key)
}

// Prune is the good store's, or the careless one.
func (b *brokenInbox) Prune(ctx context.Context) (int, error) {
	if b.prune != nil {
		return b.prune(ctx)
	}
	if p, ok := b.InboxStore.(receive.Pruner); ok {
		return p.Prune(ctx)
	}
	return 0, nil
}

// lose removes what still waits, by making it done and forgotten.
func (b *brokenInbox) lose(ctx context.Context) (int, error) {
	taken, err := b.InboxStore.Take(ctx, "billing", 1, time.Hour)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	return 1, b.InboxStore.Settle(ctx, taken[0].Claim, receive.Outcome{State: receive.Done})
}
