package receive

import (
	"context"
	"time"
)

// Source is one webhook address: who sends, how it is checked.
type Source struct {
	// Name is part of every key and metric, and the queue the worker takes from. Required, because
	// a default would lose events: a provider sends one id to every address, so two services on
	// one database that are both called "stripe" would each see the other's copy as a repeat.
	Name string
	// Provider is one of package providers, or your own. Required.
	Provider Provider
	// Secrets are all that may sign now. One at least, unless SecretsFunc is set.
	Secrets []Secret
	// SecretsFunc, if set, is asked instead (at most every minute, and once more when nothing fits).
	SecretsFunc func(context.Context) ([]Secret, error)

	// PublicURL is this address as the provider knows it. Required where the scheme signs it
	// (Twilio, Square): behind a proxy it is not the URL the server sees.
	PublicURL string
	// ChallengeToken answers unsigned handshakes (Meta's hub.verify_token). Empty: they are refused.
	ChallengeToken string
	// Account scopes keys within the source, from what was verified (Stripe Connect's account).
	// Optional.
	Account Lookup
	// Topics you handle; others are answered with success and not stored. Empty: all.
	Topics []string
	// MaxBody in bytes. Default: the provider's maximum, else 1 MiB. Checked before anything else.
	MaxBody int64
	// BodyIsID makes events without an id repeats if their bytes are equal within this time.
	// Default: never, because two equal events may both be meant.
	BodyIsID time.Duration
}

// Secret is one signing secret. After Until (zero: never) it no longer counts, without a restart.
type Secret struct {
	Value string
	Until time.Time
}

// Secrets is the short way to write secrets without an end.
func Secrets(values ...string) []Secret {
	secrets := make([]Secret, len(values))
	for i, v := range values {
		secrets[i].Value = v
	}
	return secrets
}

// String hides the secret.
func (Secret) String() string { return "[secret]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[secret]" }
