package receive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Delivery is one event, handed to a handler.
type Delivery struct {
	Source   string // Source.Name
	Provider string // Provider.Name
	Account  string // what Source.Account found, if set
	Topic    string // the event's type, "invoice.paid"

	// ID is the provider's id for the event; IDSigned says whether the signature covers it.
	ID       string
	IDSigned bool

	// Body is the event's exact bytes: the request's body, or one element of a batch. Do not
	// change them.
	Body []byte
	// Header is the request's, without its signature and authorization. Do not change it.
	Header http.Header
	// Index and Of are the element's place in a batch; 0 of 1 elsewhere.
	Index, Of int

	// SentAt is the signed time of the provider's attempt, zero if it signs none.
	SentAt time.Time
	// ReceivedAt is when this event first arrived: by the store's clock in an Inbox, by this
	// process's in a Sync.
	ReceivedAt time.Time

	// Run is 1 for the first run and counts every run begun, also those that crashed. 0 if Degraded.
	Run int
	// Fence is larger than in every earlier run of this event: pass it to whatever can refuse an
	// older one. 0 if Degraded.
	Fence int64
	// Degraded is empty, or why nothing protects this run from a twin: "store_down", "store_slow".
	Degraded string

	record   *Record
	claim    *Claim
	retain   time.Duration
	answered bool // by an Inbox, before the handler ran
	reply    Reply
}

// NewDelivery is for stores and tests that call a handler themselves: it wraps a record and the
// hold on it as a receiver would.
func NewDelivery(provider string, r *Record, c *Claim, retain time.Duration) *Delivery {
	return &Delivery{
		Source: r.Key.Source, Provider: provider, Account: r.Key.Account, Topic: r.Topic,
		ID: r.Key.ID, IDSigned: r.IDSigned,
		Body: r.Body, Header: r.Header, Index: r.Key.Index, Of: r.Of,
		SentAt: r.SentAt, ReceivedAt: r.ReceivedAt,
		Run: c.Run, Fence: c.Fence,
		record: r, claim: c, retain: retain,
	}
}

// Handler deals with one event. It is not called if its deadline has passed before it could be. ctx
// ends at the run's deadline (its cause is ErrDeadline), when the lease is lost (ErrLeaseLost), or
// when shutdown's grace is over; it does not end when the provider hangs up. See the package
// comment for what errors do.
//
// A handler that ignores ctx keeps its claim until it returns or its lease ends, whichever is
// first: Go cannot kill it.
type Handler func(ctx context.Context, d *Delivery) error

// MaxReply is the largest Reply.Body, in bytes.
const MaxReply = 4 << 10

// Answer sets what the provider, and every later repeat, is told instead of the provider's plain
// success: TwiML, a Slack message. It counts only if the handler then returns nil, hence
//
//	return d.Answer(receive.Reply{ContentType: "text/xml", Body: twiml})
//
// In an Inbox the provider was answered before the handler ran: Answer returns a permanent
// [ErrAnswered], so that the first test finds it. A Reply that is no success, or too large, is a
// permanent error as well.
func (d *Delivery) Answer(r Reply) error {
	switch {
	case d.answered:
		return Permanent(ErrAnswered)
	case r.Status != 0 && (r.Status < 200 || r.Status > 299):
		return Permanent(fmt.Errorf("receive: Answer with status %d; only 2xx says that the event is dealt with, return an error for anything else", r.Status))
	case len(r.Body) > MaxReply:
		return Permanent(fmt.Errorf("receive: Answer with %d bytes, at most %d are kept for repeats", len(r.Body), MaxReply))
	}
	d.reply = r
	return nil
}

// Claim is the run's hold on the event, for stores' ConfirmTx. Never nil; not Granted if Degraded.
func (d *Delivery) Claim() *Claim { return d.claim }

// Record is the event as it is, or would be, stored, for stores' ConfirmTx of a degraded run.
func (d *Delivery) Record() *Record { return d.record }

// Done is the outcome that ConfirmTx writes: what is to be remembered if this run succeeds.
func (d *Delivery) Done() Outcome {
	return Outcome{State: Done, Reply: d.reply, Retain: d.retain}
}

// Reply is an HTTP answer. Zero fields are the provider's success code and no body.
type Reply struct {
	Status      int // 2xx only
	ContentType string
	Body        []byte
}

// Permanent marks err as never going to work: the event becomes a dead letter now. Permanent(nil)
// is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether a handler's error makes a dead letter.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// RetryAfter marks err as not worth trying again before d has passed. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryError{err, d}
}

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// retryAfter is the wait asked for by RetryAfter, or 0.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*retryError](err); ok {
		return max(e.after, 0)
	}
	return 0
}

// Errors of stores and receivers, to be found with errors.Is.
var (
	// ErrLeaseLost: another run took this event over, or it is settled. Nothing was changed by the
	// caller.
	ErrLeaseLost = errors.New("receive: lease lost")
	// ErrNotCommitted: the handler returned nil after ConfirmTx, but its transaction is not in the
	// database.
	ErrNotCommitted = errors.New("receive: the handler's transaction did not commit")
	// ErrAnswered: Answer in an Inbox.
	ErrAnswered = errors.New("receive: the provider has been answered already")
	// ErrDeadline is the cause of a handler's ctx that ran out of time.
	ErrDeadline = errors.New("receive: handler deadline")
	// ErrShutdown is the cause of a handler's ctx when the grace of a shutdown is over.
	ErrShutdown = errors.New("receive: shutting down")
	// ErrNotFound: no such event.
	ErrNotFound = errors.New("receive: no such event")
)
