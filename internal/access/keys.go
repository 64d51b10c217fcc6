package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// memory is how long a key is known without asking: after a key is deleted through another
	// server it opens this one for so long.
	memory = time.Second
	// touchEvery is how exactly the last use of a key is known.
	touchEvery = 5 * time.Minute
	// maxRemembered bounds the keys remembered; more just ask more often.
	maxRemembered = 10_000
)

// Store is what keys need of the database.
type Store interface {
	KeyByDigest(ctx context.Context, digest outbox.Digest, now time.Time) (outbox.Key, error)
	TouchKey(ctx context.Context, id outbox.KeyID, now time.Time) error
}

// Keys finds whose a key is. It is safe for concurrent use.
//
// A key is looked up by its digest, so how long that takes tells nothing of the keys there are.
type Keys struct {
	store Store
	clock *outbox.Clock
	log   *slog.Logger

	mu    sync.Mutex
	known map[outbox.Digest]remembered
	// forgotten counts, so that what was read before a key was deleted is not remembered after.
	forgotten int
}

type remembered struct {
	key  outbox.Key
	till time.Time // on the monotonic clock
}

// NewKeys makes the look-up.
func NewKeys(store Store, clock *outbox.Clock, log *slog.Logger) *Keys {
	return &Keys{store: store, clock: clock, log: log, known: map[outbox.Digest]remembered{}}
}

// Find returns the key, and false if it is unknown, expired or deleted. The error is the store's.
func (k *Keys) Find(ctx context.Context, secret string) (outbox.Key, bool, error) {
	if !Shaped(secret) {
		return outbox.Key{}, false, nil
	}
	digest, now := DigestOf(secret), k.clock.Now()
	key, fresh, before := k.remember(digest)
	if !fresh {
		var err error
		key, err = k.store.KeyByDigest(ctx, digest, now)
		if errors.Is(err, outbox.ErrNotFound) {
			return outbox.Key{}, false, nil
		}
		if err != nil {
			return outbox.Key{}, false, err
		}
		if now.Sub(key.LastUsedAt) >= touchEvery {
			if err := k.store.TouchKey(ctx, key.ID, now); err != nil {
				// Who asks has nothing to do with it.
				k.log.DebugContext(ctx, "the last use of a key was not noted", "key", key.Prefix, "error", err)
			}
		}
		k.learn(digest, key, before)
	}
	if !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt) {
		return outbox.Key{}, false, nil
	}
	return key, true, nil
}

// Forget makes every key be asked for again, after one was deleted here.
func (k *Keys) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.known)
	k.forgotten++
}

func (k *Keys) remember(digest outbox.Digest) (key outbox.Key, fresh bool, forgotten int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, has := k.known[digest]
	return r.key, has && time.Now().Before(r.till), k.forgotten
}

func (k *Keys) learn(digest outbox.Digest, key outbox.Key, forgotten int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.forgotten != forgotten {
		return
	}
	if len(k.known) >= maxRemembered {
		clear(k.known)
	}
	k.known[digest] = remembered{key: key, till: time.Now().Add(memory)}
}
