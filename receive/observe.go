package receive

import (
	"context"
	"time"
)

// Observer is told what happened: once per request, once per event in it, once per run, and when the
// store fails. It must be quick; it sees no payload.
type Observer func(ctx context.Context, o Observation)

// Steps of an Observation.
const (
	StepRequest = "request" // a request was answered
	StepRun     = "run"     // a handler was run, or given up
	StepSettle  = "settle"  // a run's outcome could not be written as it should
	StepStore   = "store"   // the store did not answer a request (Failed), is lost, or is back
)

// Outcomes of an Observation.
const (
	Processed     = "processed"      // the handler succeeded
	Stored        = "stored"         // an Inbox wrote the event down
	Duplicate     = "duplicate"      // it was there, or done, before
	InFlight      = "in_flight"      // being handled by another run
	Failed        = "failed"         // the handler failed, or the store did
	DeadLettered  = "dead"           // given up, and written down
	Rejected      = "rejected"       // does not verify; Reason says why
	TooLarge      = "too_large"      // over MaxBody
	Degraded      = "degraded"       // run without a claim
	Takeover      = "takeover"       // a run began after one that ended without an outcome
	LeaseLost     = "lease_lost"     // another run has the event
	ConfirmFailed = "confirm_failed" // success that could not be recorded
	ReleaseFailed = "release_failed" // a claim that could not be given back; its lease ends
	Handshaken    = "handshake"
	Declined      = "declined" // a topic not asked for
	OtherBody     = "other_body"
	Overrun       = "overrun" // the handler ignored its deadline
	// StoreLost: the store did not answer three requests in a row. Until it is back a Sync, and an
	// Inbox with a Fallback, ask it once a second and do not wait for it otherwise.
	StoreLost = "store_lost"
	StoreBack = "store_back" // after Age
)

// Observation is one thing that happened. Fields that do not apply are zero; with StepRequest and no
// Key it is about the whole request, and there is one such of each.
type Observation struct {
	Source, Provider string
	Key              Key
	Step             string
	Outcome          string
	Reason           string // fit for a metric label
	Took             time.Duration
	// Age is how long after arrival a duplicate came: it proves or disproves Retain. With StoreBack,
	// how long the store was away.
	Age time.Duration
	// Skew is the signed timestamp minus now.
	Skew time.Duration
	// LeaseLeft when the run ended; negative: overrun.
	LeaseLeft time.Duration
	Err       error
}
