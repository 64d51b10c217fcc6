package receive

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"net/http"
	"time"
)

// State of an event in a store.
//
//	absent ─claim→ held ─settle→ done
//	   ▲            │  └─settle→ dead
//	   └──────── free (settled for another run, or the lease ended)
//
// An absent event is Free: nobody needs to know the difference.
type State int

// The numbers are stored; they do not change.
const (
	Free State = 0 // may be claimed: new, failed before, or its lease is over
	Held State = 1 // a run has it and its lease is not over
	Done State = 2 // a run succeeded; kept for Retain
	Dead State = 3 // failed for good and written down; kept until revived
)

// String names the state.
func (s State) String() string {
	if s < Free || s > Dead {
		return "unknown"
	}
	return [...]string{"free", "held", "done", "dead"}[s]
}

// Key is what makes two requests the same event.
type Key struct {
	Source, Account, ID string
	Index               int // the place in a batch
	// Digest is set where the signature does not cover ID: whoever holds one old signed body could
	// otherwise occupy an id he knows or guesses, and the real event would be "a repeat". Of an
	// event without an id it is random, so that it is never a repeat.
	Digest [32]byte
}

// Hash is what stores key on: a SHA-256 over the parts, each with its length in front, so that no
// two keys share one.
func (k Key) Hash() [32]byte {
	var buf [256]byte
	b := buf[:0]
	for _, part := range [...]string{k.Source, k.Account, k.ID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(k.Index))
	b = append(b, k.Digest[:]...)
	return sha256.Sum256(b)
}

// Record is an event as it is stored.
type Record struct {
	Key   Key
	Topic string
	// Header is the request's, without what carried its signature or a secret.
	Header http.Header
	Body   []byte   // exact bytes: the request's body, or one element of its batch
	Digest [32]byte // of Body, after Provider.Fingerprint
	Of     int      // how many events the request held; Key.Index counts from 0
	// IDSigned says whether the signature covers Key.ID.
	IDSigned bool
	SentAt   time.Time // the signed time of the provider's attempt; zero if it signs none
	// ReceivedAt is when the event first arrived, by the store's clock. Set by the store.
	ReceivedAt time.Time
}

// Token tells one run from every other: 128 random bits, made before the store is asked.
type Token [16]byte

// NewToken makes a token.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // crypto/rand.Read never fails; it ends the process instead
	return t
}

// String is the token in hex.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Claim is one run's hold on one event.
type Claim struct {
	Key   Key
	Token Token
	// Granted is false in a degraded run: the store was asked, but its answer did not come. The
	// event may be held by Token, by another, or not at all.
	Granted bool
	Fence   int64 // strictly increasing per key for as long as the store remembers it
	Run     int   // runs begun so far, this one included
	Crashes int   // runs before this one that ended without being settled, in a row
	// Until is the end of the lease on this process's monotonic clock, counted from before the
	// store was asked. The receiver sets it; stores need not.
	Until time.Time

	tx txState
}

// txState says whose word counts for a run's success.
type txState int

const (
	txNone      txState = iota // the handler's nil
	txOpen                     // the database's: ConfirmTx wrote it into a transaction
	txCommitted                // the database's, and it has spoken
)

// InTx is called by a store's ConfirmTx: from now on only the database knows whether this run
// succeeded, and the receiver looks there before it believes the handler.
func (c *Claim) InTx() { c.tx = txOpen }

// Committed is called by a store that saw the commit of that transaction succeed itself.
func (c *Claim) Committed() { c.tx = txCommitted }

// Outcome ends a run.
type Outcome struct {
	State  State         // Done, Dead or Free
	Reply  Reply         // Done: what repeats are told
	Retain time.Duration // Done: how long to remember; at least
	After  time.Duration // Free: not to be taken before (Inbox; a Claim does not wait)
	Reason string        // Dead: for people. Free: the last error, for people
	// Record is what a Dead outcome from Sync keeps: a claim need not have stored the body. Nil
	// from an Inbox, whose store has it.
	Record *Record
	// Look changes nothing. With Done it asks whether the transaction of ConfirmTx made the event
	// Done under this token: nil if so, ErrNotCommitted if the token still holds it.
	Look bool
}

// Found is what a store had.
type Found struct {
	State State
	// New is set by Put for a record that was not there before.
	New bool
	// Claim is set exactly if the caller now holds the event.
	Claim *Claim
	Left  time.Duration // Held: rest of the lease, by the store's clock
	Reply Reply         // Done
	Since time.Duration // since the event first arrived; 0 for a new one
	// OtherBody says that the same key came with another Record.Digest before.
	OtherBody bool
}

// ClaimStore is what Sync needs. receivetest.TestClaimStore says whether yours is one.
//
// Both methods are atomic on one key and safe for concurrent use. Leases are measured by the
// store's own clock. ctx bounds the wait, not the effect: a call that returned ctx's error may have
// happened, may happen later, or never.
type ClaimStore interface {
	// Claim gives r's key to token if it is Free, in one step that also counts the run and raises
	// the fence. A Held key whose lease is over is Free; a Done one whose Retain is over is, too.
	// A key already held by this very token is granted again, unchanged: that is how a caller
	// finds out after a timeout. A key whose row is locked by a transaction is Held (with Left at
	// least a little), not an error and not a wait.
	//
	// Of r a store must keep the key's hash, the digest and the time; the body need not be kept.
	Claim(ctx context.Context, r *Record, token Token, lease time.Duration) (Found, error)

	// Settle ends the run, exactly if the key is Held and by this token, lease over or not.
	// Settled to the same state by the same token before: nil. Everything else, above all Free
	// after Done or Dead: ErrLeaseLost, and nothing is changed.
	//
	// Dead is only asked of a store that is a DeadLetterStore as well: the letter and the state
	// are written in one step.
	Settle(ctx context.Context, c *Claim, o Outcome) error
}

// InboxStore is what Inbox needs: durable, so it is SQL in this module. Settle is ClaimStore's, with
// one thing more: no outcome ever deletes a record. receivetest.TestInboxStore is its contract.
type InboxStore interface {
	// Put commits all of records or none, and returns nil only when they would survive a power
	// cut. It answers one Found a record: New (and Free), or what was there. It never reports a
	// record it has not seen committed: of two Puts of one key in one group commit, both wait for
	// it. A body that differs from the one stored under its key is kept beside it, and reported
	// as OtherBody. Two records of one key in one call are one.
	Put(ctx context.Context, records []Record) ([]Found, error)

	// Take gives up to n due records of a source to fresh tokens, in one step that counts the run
	// (so that a record which kills the process is counted too). Due is a Free record whose After
	// has passed, and a Held one whose lease is over. Oldest due first. It does not wait for
	// records that others are taking.
	Take(ctx context.Context, source string, n int, lease time.Duration) ([]Taken, error)

	// Extend makes the lease end that much from now, under Settle's condition; it never shortens it.
	Extend(ctx context.Context, c *Claim, lease time.Duration) error

	// Settle is ClaimStore's. Free keeps the record, Dead keeps it as a dead letter.
	Settle(ctx context.Context, c *Claim, o Outcome) error

	DeadLetterStore
}

// Taken is a record and the hold on it.
type Taken struct {
	Record Record
	Claim  *Claim
}

// DeadLetterStore keeps what failed for good.
type DeadLetterStore interface {
	// Bury writes r down durably as a dead letter, once per key; a second time is nil.
	Bury(ctx context.Context, r *Record, reason string) error
	// Letters lists the dead letters of a source, oldest first.
	Letters(ctx context.Context, source string) iter.Seq2[DeadLetter, error]
	// Revive makes a dead or done event Free and due now, keeping its record, fence and run count.
	// ErrNotFound if there is none such.
	Revive(ctx context.Context, key Key) error
}

// DeadLetter is an event that failed for good.
type DeadLetter struct {
	Record Record
	Reason string
	Runs   int       // begun
	At     time.Time // when it was given up, by the store's clock
}

// Checker is a store that can look at its own server: durability, eviction, schema. NewInbox and
// NewSync ask once.
type Checker interface {
	Check(ctx context.Context) ([]Problem, error)
}

// ClaimMemory is how long the fence and the run count of an event that never succeeded in a Sync are
// remembered after its last run. The event itself is with its provider.
const ClaimMemory = 7 * 24 * time.Hour

// Pruner is a store whose finished events do not vanish by themselves. Prune removes some of the
// Done whose Retain is over, and says how many; never a Free, Held or Dead record. A claim without a
// record, of an event that no run of a Sync has finished, it may remove once it is Free, or its lease
// over, for [ClaimMemory]. Inbox.Run and Sync call it about once a minute, and again at once while it
// removes something.
type Pruner interface {
	Prune(ctx context.Context) (removed int, err error)
}

// Version orders the states of one object: At, then Tie where At is equal. Tie must come from the
// event (its id, or a sequence), never from arrival, so that any order of arrival ends in the same
// state.
type Version struct {
	At  int64
	Tie string
}

// After reports whether v is newer than w.
func (v Version) After(w Version) bool {
	return v.At > w.At || v.At == w.At && v.Tie > w.Tie
}
