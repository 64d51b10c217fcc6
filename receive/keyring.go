package receive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// How Source.SecretsFunc is asked.
const (
	secretsFor   = time.Minute     // an answer is believed this long
	secretsAgain = 5 * time.Second // and this long if nothing fits, or if there was none: strangers must not set the pace
	secretsWait  = 5 * time.Second // for an answer
)

// keyring holds the keys that may sign now.
type keyring struct {
	scheme signature.Scheme
	fetch  func(context.Context) ([]Secret, error)
	// lasting are the keys if they never change: not fetched, and none has an end.
	lasting []signature.Key

	mu       sync.Mutex
	keys     []heldKey
	asked    time.Time // last
	failed   error     // of that time
	fetching bool
}

type heldKey struct {
	signature.Key
	until time.Time
}

// newKeyring parses the source's secrets. The problems are those of lint.
func newKeyring(src *Source, now time.Time) (*keyring, []Problem) {
	k := &keyring{scheme: src.Provider.Scheme, fetch: src.SecretsFunc}
	if k.fetch != nil {
		return k, nil
	}
	keys, problems := parseSecrets(k.scheme, src.Secrets)
	k.keys = keys
	if !slices.ContainsFunc(keys, func(k heldKey) bool { return !k.until.IsZero() }) {
		k.lasting = live(keys, now)
	}
	if len(problems) == 0 && len(live(keys, now)) == 0 {
		what := "there is no secret, so nothing can be verified"
		if len(keys) > 0 {
			what = "every secret has expired"
		}
		problems = append(problems, Problem{Secretless, Loses, what, "set Source.Secrets to the signing secret that the provider's page shows"})
	}
	return k, problems
}

func parseSecrets(scheme signature.Scheme, secrets []Secret) (keys []heldKey, problems []Problem) {
	for i, s := range secrets {
		key, err := scheme.Key(s.Value)
		if err != nil {
			problems = append(problems, Problem{
				Secretless, Loses, fmt.Sprintf("secret %d of %d cannot be used: %v", i+1, len(secrets), err),
				"set it to the signing secret that the provider's page shows",
			})
			continue
		}
		keys = append(keys, heldKey{key, s.Until})
	}
	return keys, problems
}

func live(keys []heldKey, now time.Time) []signature.Key {
	valid := make([]signature.Key, 0, len(keys))
	for _, k := range keys {
		if k.until.IsZero() || now.Before(k.until) {
			valid = append(valid, k.Key)
		}
	}
	return valid
}

// current are the keys that count now. With again, an answer of SecretsFunc that is not quite fresh
// is asked for once more. Keys known before are better than none: a secret manager that is slow or
// down must not hold up or refuse events.
func (k *keyring) current(ctx context.Context, now time.Time, again bool) ([]signature.Key, error) {
	if k.fetch == nil {
		if k.lasting != nil {
			return k.lasting, nil
		}
		return live(k.keys, now), nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := live(k.keys, now)
	limit := secretsFor
	if again || k.failed != nil {
		limit = secretsAgain
	}
	due := k.asked.IsZero() || now.Sub(k.asked) >= limit
	if due && (!k.fetching || len(known) == 0) {
		k.ask(ctx, now)
		known = live(k.keys, now)
	}
	if len(known) == 0 && k.failed != nil {
		return nil, fmt.Errorf("receive: secrets: %w", k.failed)
	}
	return known, nil
}

// ask calls SecretsFunc, without the lock, so that requests which fit the known keys pass it by.
func (k *keyring) ask(ctx context.Context, now time.Time) {
	k.fetching = true
	k.mu.Unlock()
	ctx, cancel := detached(ctx, secretsWait)
	secrets, err := k.fetch(ctx)
	cancel()
	var keys []heldKey
	if err == nil {
		var problems []Problem
		keys, problems = parseSecrets(k.scheme, secrets)
		if len(keys) == 0 && len(problems) > 0 {
			err = errors.New(problems[0].Detail)
		}
	}
	k.mu.Lock()
	k.fetching, k.asked, k.failed = false, now, err
	if err == nil {
		k.keys = keys
	}
}

// verify checks a request with the current keys.
func (k *keyring) verify(ctx context.Context, r signature.Request, now time.Time) (signature.Verified, error) {
	keys, err := k.current(ctx, now, false)
	if err != nil {
		return signature.Verified{}, err
	}
	v, err := k.scheme.Verify(ctx, r, keys, now)
	if reason, _ := signature.Why(err); err == nil || k.fetch == nil || reason != signature.Mismatch {
		return v, err
	}
	if keys, err = k.current(ctx, now, true); err != nil {
		return signature.Verified{}, err
	}
	return k.scheme.Verify(ctx, r, keys, now)
}
