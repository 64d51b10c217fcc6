package outbox

import (
	"bytes"
	"context"
	"slices"
	"time"
)

type (
	replayKind       struct{}
	cancellationKind struct{}
	erasureKind      struct{}
	jobKind          struct{}
)

func (replayKind) prefix() string       { return "rpl_" }
func (cancellationKind) prefix() string { return "can_" }
func (erasureKind) prefix() string      { return "era_" }
func (jobKind) prefix() string          { return "job_" }

type (
	// ReplayID names a replay of many deliveries.
	ReplayID = ID[replayKind]
	// CancellationID names a cancellation of many deliveries.
	CancellationID = ID[cancellationKind]
	// ErasureID names an erasure of many events' bytes.
	ErasureID = ID[erasureKind]
	// JobID names a job of any type. People see it as its type's id, see Job.Name.
	JobID = ID[jobKind]
)

// ParseReplayID reads rpl_….
func ParseReplayID(s string) (ReplayID, error) { return ParseID[replayKind](s) }

// ParseCancellationID reads can_….
func ParseCancellationID(s string) (CancellationID, error) { return ParseID[cancellationKind](s) }

// ParseErasureID reads era_….
func ParseErasureID(s string) (ErasureID, error) { return ParseID[erasureKind](s) }

// NewJobID mints a job's id for the given database time.
func NewJobID(at time.Time) JobID { return NewID[jobKind](at) }

// JobFloor is the smallest job id of the given time's millisecond.
func JobFloor(at time.Time) JobID { return FloorID[jobKind](at) }

// JobType says what a job does to the deliveries it finds.
type JobType string

const (
	// JobReplay plans deliveries that have ended again, or such as never were.
	JobReplay JobType = "replay"
	// JobCancellation ends pending deliveries as cancelled.
	JobCancellation JobType = "cancellation"
	// JobDeleteTenant is the cancellation of all that is pending of a deleted tenant.
	JobDeleteTenant JobType = "delete_tenant"
	// JobErasure takes the bytes of events away, as Erasing does for one. Its Matched and Done count
	// events.
	JobErasure JobType = "erasure"
)

// LoopJobs are the types that an owner works off in steps. One of another type is a newer
// version's, which runs beside this one during a deploy, and left for it.
var LoopJobs = []JobType{JobReplay, JobCancellation, JobErasure}

// JobState is how a job stands.
type JobState string

const (
	JobRunning JobState = "running"
	// JobStopping: it was cancelled and takes back what it planned and nobody has sent yet.
	JobStopping  JobState = "stopping"
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled"
	// JobFailed: its next step cannot be done, however often it is tried.
	JobFailed JobState = "failed"
)

// Ended reports whether the job does nothing any more.
func (s JobState) Ended() bool { return s != JobRunning && s != JobStopping }

// ReplayOf says which deliveries a replay is about.
type ReplayOf string

const (
	ReplayDead      ReplayOf = "dead"
	ReplayDelivered ReplayOf = "delivered"
	ReplayCancelled ReplayOf = "cancelled"
	// ReplayMissing: events that an endpoint wants as it is today and that were never planned for
	// it, for instance because it is younger.
	ReplayMissing ReplayOf = "missing"
	// ReplayAll is every delivery that has ended.
	ReplayAll ReplayOf = "all"
)

// Covers reports whether a delivery in the state is meant.
func (r ReplayOf) Covers(state DeliveryState) bool {
	return state != StatePending && (r == ReplayAll || string(r) == string(state))
}

// JobFilter says which deliveries a job is about; all that is set must hold. The times are the
// event's, [From, To).
type JobFilter struct {
	From       time.Time    `json:"from,omitzero"`
	To         time.Time    `json:"to,omitzero"`
	Endpoint   EndpointID   `json:"endpoint,omitzero"`
	EventTypes []string     `json:"event_types,omitempty"` // as an endpoint's: exact, "prefix.*" or "*"
	State      ReplayOf     `json:"state,omitempty"`       // of a replay
	Deliveries []DeliveryID `json:"deliveries,omitempty"`  // of a replay
	Events     []EventID    `json:"events,omitempty"`      // of a cancellation or an erasure
	// Metadata of an erasure: the event has all of these entries.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// WantsType reports whether the filter lets an event type through.
func (f *JobFilter) WantsType(eventType string) bool {
	if len(f.EventTypes) == 0 {
		return true
	}
	return slices.ContainsFunc(f.EventTypes, func(pattern string) bool { return MatchEventType(pattern, eventType) })
}

// Whole reports whether an erasure asks for nothing but a time: it is then about what waits in
// quarantine, too, which is no event yet and has no type.
func (f *JobFilter) Whole() bool {
	return len(f.EventTypes) == 0 && len(f.Events) == 0 && len(f.Metadata) == 0
}

// Arrived is the range (low, high) of requests' ids in which what an erasure takes out of
// quarantine lies, at each of its steps.
func (j *Job) Arrived() (low, high [16]byte) {
	all := *j
	all.Cursor = [16]byte{}
	low, high = all.Range()
	if until := InboundFloor(j.CreatedAt.Add(time.Millisecond)); bytes.Compare(until[:], high[:]) < 0 {
		high = until
	}
	return low, high
}

// Range is the range (low, high) of ids in which what the job has still to look at lies: of
// deliveries, or for ReplayMissing and erasures of events, which begin with the same time.
func (j *Job) Range() (low, high [16]byte) {
	f := &j.Filter
	low, high = j.Cursor, EventFloor(time.UnixMilli(1<<48-1))
	if !f.From.IsZero() {
		low = later(low, idBefore(EventFloor(f.From)))
	}
	if !f.To.IsZero() {
		high = EventFloor(f.To)
	}
	if len(f.Events) > 0 {
		first := slices.MinFunc(f.Events, func(a, b EventID) int { return a.Time().Compare(b.Time()) })
		low = later(low, idBefore(EventFloor(first.Time())))
	}
	if len(f.Deliveries) > 0 {
		first := slices.MinFunc(f.Deliveries, func(a, b DeliveryID) int { return bytes.Compare(a[:], b[:]) })
		low = later(low, idBefore(first))
	}
	return low, high
}

func later(a, b [16]byte) [16]byte {
	if bytes.Compare(a[:], b[:]) < 0 {
		return b
	}
	return a
}

// idBefore is the id before another.
func idBefore(id [16]byte) [16]byte {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}

// Job is work on many deliveries, or events, of one tenant that the owner of its shard does in bounded steps.
type Job struct {
	ID        JobID
	Type      JobType
	Tenant    TenantRef
	TenantKey string // where it was read
	Filter    JobFilter
	Reason    string  // of a cancellation, kept with every delivery it ends; of an erasure, for people
	Rate      float64 // how many deliveries of a replay may start a second; 0: no limit
	Key       string  // the idempotency key it was asked for with; "" for none
	CreatedBy string
	CreatedAt time.Time

	State      JobState
	FinishedAt time.Time
	// Cursor is the last id that was looked at, Scanned that there is none behind it: a delivery's,
	// or for ReplayMissing and erasures an event's.
	Cursor  [16]byte
	Scanned bool

	// Matched is how many deliveries it is about. Done of them have come to their end:
	// Delivered, Failed (dead again) or Skipped; of a cancellation those that it cancelled are
	// Done and nothing else.
	Matched, Done, Delivered, Failed, Skipped int64
	// Pending are those it has planned that have not ended.
	Pending int64
}

// NewDeleteTenantJob is the job of a tenant that is being deleted, with so many pending deliveries.
func NewDeleteTenantJob(t Tenant, pending int, by string, now time.Time) Job {
	return Job{
		ID: NewJobID(now), Type: JobDeleteTenant, Tenant: t.TenantRef, TenantKey: t.Key,
		Reason: ReasonTenantDeleted, CreatedBy: by, CreatedAt: now,
		State: JobRunning, Matched: int64(pending),
	}
}

// Name is the job's id as people see it.
func (j *Job) Name() string {
	switch j.Type {
	case JobReplay:
		return ReplayID(j.ID).String()
	case JobErasure:
		return ErasureID(j.ID).String()
	}
	return CancellationID(j.ID).String()
}

// ScanEnded makes the figures true once everything was looked at. What was counted at first and
// not found any more was replayed, ended or purged by somebody else.
func (j *Job) ScanEnded() {
	j.Scanned = true
	found := j.Done + j.Pending
	if gone := j.Matched - found; gone > 0 {
		j.Done, j.Skipped = j.Done+gone, j.Skipped+gone
	}
	j.Matched = max(j.Matched, found)
}

// Fail ends a job that cannot go on.
func (j *Job) Fail(now time.Time) {
	if !j.State.Ended() {
		j.State, j.FinishedAt = JobFailed, now
	}
}

// Settle ends a job that has nothing left to do.
func (j *Job) Settle(now time.Time) {
	switch {
	case j.State == JobRunning && j.Scanned && j.Pending <= 0:
		j.State, j.FinishedAt = JobDone, now
	case j.State == JobStopping && j.Pending <= 0:
		j.State, j.FinishedAt = JobCancelled, now
	}
}

// Bounds of a job.
const (
	// MaxJobRows is how many deliveries, or events, a job may have to look through.
	MaxJobRows = 1_000_000
	// MaxMissingEvents bounds that for ReplayMissing, which asks about each event and endpoint.
	MaxMissingEvents = 200_000
	MaxJobIDs        = 1000
	MinJobRate       = 0.1
	MaxJobRate       = 10_000
)

// JobQuery filters jobs, newest first by id unless the page says otherwise.
type JobQuery struct {
	Tenant TenantRef // zero: all tenants' (operator)
	// Types are those listed.
	Types []JobType
	After JobID
}

// JobStep is what one transaction did for a job.
type JobStep struct {
	Job   Job        // as it is now
	Due   []Delivery // planned, and due at their NextAt
	Ended []DeliveryID
	Freed []Delivery // whose turn came because of those
	// Erased are events without bytes from now on, or since a step whose answer was lost.
	Erased []EventID
}

// MissingPage is a part of the events that a replay of what is missing looks through.
type MissingPage struct {
	Events []Event // without their payloads
	Cursor EventID // the last one looked at
	Last   bool    // there is none behind it
}

// Jobs keeps jobs. Asking for one writes its row and a command to the shard's owner; from then on
// the row is the owner's alone (JobWork). No method reaches a delivery of another tenant than the
// job's.
type Jobs interface {
	// CountJob counts the deliveries, or events, that the job would be about, without writing anything, and
	// reports capped, and no number, where more than limit rows would have to be read. It does not
	// serve ReplayMissing.
	CountJob(ctx context.Context, job Job, limit int) (matched int, capped bool, err error)
	// CountGone counts those of the deliveries a replay would be about that it would skip, since
	// their payload or their endpoint is gone. It reads no more than limit rows of each table. It
	// does not serve ReplayMissing, which finds nothing of the kind.
	CountGone(ctx context.Context, job Job, limit int) (gone int, err error)
	// DeliveriesOf returns those of the deliveries that are, or were, the tenant's.
	DeliveriesOf(ctx context.Context, tenant TenantRef, ids []DeliveryID) (map[DeliveryID]bool, error)
	// CreateJob stores a job and asks the owner to run it. One that exists under the same
	// idempotency key is returned instead; ErrIdempotencyMismatch if that is another one.
	CreateJob(ctx context.Context, job Job) (Job, error)
	// Job finds a job of one of the types.
	Job(ctx context.Context, tenant TenantRef, types []JobType, id JobID) (Job, error)
	Jobs(ctx context.Context, q JobQuery, page Page) ([]Job, error)
	// RequestJobCancel asks the owner to stop the job, unless it has ended.
	RequestJobCancel(ctx context.Context, tenant TenantRef, types []JobType, id JobID) (Job, error)

	// MissingEvents returns the next events that a replay of what is missing looks through:
	// accepted before the job was made, and planned by now for whoever wanted them then.
	MissingEvents(ctx context.Context, job Job, limit int) (MissingPage, error)
}

// JobWork is what the owner of a shard does for its jobs. Every step is one transaction that moves
// the deliveries, the figures and the cursor together, so that a job goes on where it stood
// whoever dies meanwhile, and meets no delivery twice.
type JobWork interface {
	// LoadJobs returns the jobs of the shards that have not ended, for their owner.
	LoadJobs(ctx context.Context, shards []Shard) ([]Job, error)
	// TakeJob executes one outbox row of CommandRunJob or CommandCancelJob, and deletes it. What
	// it returns is the job as it stands; nil if there is none any more.
	TakeJob(ctx context.Context, lease Lease, row OutboxRow) (*Job, error)
	// StepJob counts what has ended of the job's deliveries and does its next piece: at most limit
	// deliveries are planned, the n-th due n times spacing from now, or cancelled, or so many
	// events erased. With limit 0, and for ReplayMissing, it only counts. The job ends once nothing
	// is left. An erasure goes on from the cursor of the job it is given: what a step erased whose
	// answer was lost is told again.
	StepJob(ctx context.Context, lease Lease, job Job, limit int, spacing time.Duration, now time.Time) (JobStep, error)
	// RecallJob takes back at most limit deliveries of a replay that is being stopped: each is
	// again what it was before. The excepted ones, whose attempts are under way, are left.
	RecallJob(ctx context.Context, lease Lease, job Job, except []DeliveryID, limit int, now time.Time) (JobStep, error)
	// FailJob ends a job that cannot go on, as JobFailed. What it has planned is tried all the same.
	FailJob(ctx context.Context, lease Lease, job Job, now time.Time) (JobStep, error)
	// PlanMissing plans deliveries found missing, with next as Route, and moves the job from the
	// cursor it has to that of the page; where it is not there any more, nothing is written.
	PlanMissing(ctx context.Context, lease Lease, job Job, page MissingPage, deliveries []Delivery, next map[EndpointID]int64, now time.Time) (JobStep, error)
}
