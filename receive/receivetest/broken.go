package receivetest

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// Broken are stores with one fault each, by name. A suite that passes one of them is no suite.
//
// Each wraps a good store, which it may only be given for itself.
func Broken() map[string]func(receive.ClaimStore) receive.ClaimStore {
	return map[string]func(receive.ClaimStore) receive.ClaimStore{
		"grants what is held": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				f, err := b.ClaimStore.Claim(ctx, r, token, lease)
				if err == nil && f.State == receive.Held && f.Claim == nil {
					f.Claim = &receive.Claim{Key: r.Key, Token: token, Granted: true, Run: 1, Fence: 1}
				}
				return f, err
			}}
		},
		"never ends a lease": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, _ time.Duration) (receive.Found, error) {
				return b.ClaimStore.Claim(ctx, r, token, 1000*time.Hour)
			}}
		},
		"ends every lease at once": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, _ time.Duration) (receive.Found, error) {
				return b.ClaimStore.Claim(ctx, r, token, 0)
			}}
		},
		"keys on the id alone": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				cut := *r
				cut.Key = receive.Key{ID: r.Key.ID}
				f, err := b.ClaimStore.Claim(ctx, &cut, token, lease)
				if f.Claim != nil {
					f.Claim.Key = r.Key
				}
				return f, err
			}, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				cut := *c
				cut.Key = receive.Key{ID: c.Key.ID}
				return b.ClaimStore.Settle(ctx, &cut, o)
			}}
		},
		"does not know its own token": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				if held, asked := b.holder(r.Key); asked && held == token {
					return b.ClaimStore.Claim(ctx, r, receive.NewToken(), lease)
				}
				f, err := b.ClaimStore.Claim(ctx, r, token, lease)
				if f.Claim != nil {
					b.hold(r.Key, token)
				}
				return f, err
			}}
		},
		"settles for whoever asks": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: remember, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				mine := *c
				if token, known := b.holder(c.Key); known {
					mine.Token = token
				}
				return b.ClaimStore.Settle(ctx, &mine, o)
			}}
		},
		"says yes to an overtaken run": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				_ = b.ClaimStore.Settle(ctx, c, o)
				return nil
			}}
		},
		"refuses a second time": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				if _, settled := b.holder(c.Key); settled {
					return receive.ErrLeaseLost
				}
				err := b.ClaimStore.Settle(ctx, c, o)
				if err == nil {
					b.hold(c.Key, c.Token)
				}
				return err
			}}
		},
		"forgets the reply": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Reply = receive.Reply{}
				return b.ClaimStore.Settle(ctx, c, o)
			}}
		},
		"forgets at once what is done": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Retain = 0
				return b.ClaimStore.Settle(ctx, c, o)
			}}
		},
		"never forgets what is done": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Retain = 1000 * time.Hour
				return b.ClaimStore.Settle(ctx, c, o)
			}}
		},
		"writes when it should look": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, settle: func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error {
				o.Look = false
				return b.ClaimStore.Settle(ctx, c, o)
			}}
		},
		"does not see another body": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				f, err := b.ClaimStore.Claim(ctx, r, token, lease)
				f.OtherBody = false
				return f, err
			}}
		},
		"does not raise the fence": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				f, err := b.ClaimStore.Claim(ctx, r, token, lease)
				if f.Claim != nil {
					f.Claim.Fence = 1
				}
				return f, err
			}}
		},
		"does not count runs": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				f, err := b.ClaimStore.Claim(ctx, r, token, lease)
				if f.Claim != nil {
					f.Claim.Run, f.Claim.Crashes = 1, 0
				}
				return f, err
			}}
		},
		"does not look at the context": func(s receive.ClaimStore) receive.ClaimStore {
			return &brokenStore{ClaimStore: s, claim: func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
				return b.ClaimStore.Claim(context.WithoutCancel(ctx), r, token, lease)
			}}
		},
	}
}

// brokenStore is a good store in the hands of somebody careless.
type brokenStore struct {
	receive.ClaimStore
	claim  func(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error)
	settle func(b *brokenStore, ctx context.Context, c *receive.Claim, o receive.Outcome) error

	mu      sync.Mutex
	holders map[receive.Key]receive.Token
}

// Claim is the good store's, or the careless one.
func (b *brokenStore) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	if b.claim != nil {
		return b.claim(b, ctx, r, token, lease)
	}
	return b.ClaimStore.Claim(ctx, r, token, lease)
}

// Settle is the good store's, or the careless one.
func (b *brokenStore) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if b.settle != nil {
		return b.settle(b, ctx, c, o)
	}
	return b.ClaimStore.Settle(ctx, c, o)
}

// remember is a claim whose holder is kept in mind.
func remember(b *brokenStore, ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	f, err := b.ClaimStore.Claim(ctx, r, token, lease)
	if f.Claim != nil {
		b.hold(r.Key, token)
	}
	return f, err
}

func (b *brokenStore) hold(key receive.Key, token receive.Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holders == nil {
		b.holders = map[receive.Key]receive.Token{}
	}
	b.holders[key] = token
}

func (b *brokenStore) holder(key receive.Key) (receive.Token, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	token, known := b.holders[key]
	return token, known
}
