package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/replay"
)

const (
	// jobBatch is how many deliveries one step of a job plans or cancels.
	jobBatch = 500
	// jobAhead is how many deliveries of a replay may be planned and not ended: enough for every
	// server that keeps up, and no more than can be taken back within a second or two.
	jobAhead = 20_000
	// jobLook is how long a job waits before it looks again at what has ended meanwhile.
	jobLook = 500 * time.Millisecond
	// jobRateStep is how much of a replay with a rate is planned at once.
	jobRateStep = time.Second
	// jobTries is how often in a row the same step of a job may be refused, half a second apart,
	// until the job has failed. What an outage fails is not counted, nor a step without the lease.
	jobTries = 60
)

// ownJob is a job of a shard of this node.
type ownJob struct {
	outbox.Job
	nextAt time.Time // monotonic: when it may go on
	tries  int       // of its next step, which the database refused
}

// jobLoop does the jobs of the node's shards, a step of each in turn. What a replay plans waits in
// a lane of its own; nothing here delays a live delivery but by the database's time it takes.
func (n *Node) jobLoop(ctx context.Context) {
	for ctx.Err() == nil {
		wait := n.stepJobs(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-n.jobNow:
		}
		timer.Stop()
	}
}

// loadJobs finds the jobs of shards that were taken.
func (n *Node) loadJobs(ctx context.Context, shards []outbox.Shard) error {
	jobs, err := n.cfg.Store.LoadJobs(ctx, shards)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		n.ownJob(j)
	}
	return nil
}

// ownJob goes on with a job from how it stands.
func (n *Node) ownJob(j outbox.Job) {
	n.mu.Lock()
	if _, mine := n.lease.Epochs[j.Tenant.Shard]; mine && !j.State.Ended() {
		n.jobs[j.ID] = &ownJob{Job: j}
	}
	n.mu.Unlock()
	wake(n.jobNow)
}

// takeJob executes a command about a job.
func (n *Node) takeJob(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) error {
	j, err := n.cfg.Store.TakeJob(ctx, lease, row)
	if err == nil && j != nil {
		n.ownJob(*j)
	}
	return err
}

// stepJobs does one step of every job whose time has come, and returns how long to wait.
func (n *Node) stepJobs(ctx context.Context) time.Duration {
	const idle = time.Minute
	n.mu.Lock()
	jobs := make([]*ownJob, 0, len(n.jobs))
	for _, j := range n.jobs {
		jobs = append(jobs, j)
	}
	n.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *ownJob) int { return a.CreatedAt.Compare(b.CreatedAt) })
	wait := idle
	var failed error
	for _, j := range jobs {
		if _, may := n.tenure.current(); !may || ctx.Err() != nil {
			return jobLook
		}
		if left := time.Until(j.nextAt); left > 0 {
			wait = min(wait, left)
			continue
		}
		if err := n.stepJob(ctx, j); err != nil {
			failed = err
			j.nextAt = time.Now().Add(jobLook)
		}
		wait = min(wait, max(time.Until(j.nextAt), 0))
	}
	n.report(ctx, "jobs", failed)
	return wait
}

// stepJob does one step of a job.
func (n *Node) stepJob(ctx context.Context, j *ownJob) error {
	n.mu.Lock()
	lease := n.lease
	n.mu.Unlock()
	began := time.Now()
	var step outbox.JobStep
	var err error
	limit, spacing := j.pace()
	switch {
	case j.State == outbox.JobStopping:
		step, err = n.recallJob(ctx, lease, j)
	case limit > 0 && !j.Scanned && j.Filter.State == outbox.ReplayMissing:
		step, err = n.planMissing(ctx, lease, j, limit)
	default:
		step, err = n.cfg.Store.StepJob(ctx, lease, j.Job, limit, spacing, n.cfg.Clock.Now())
	}
	switch {
	case errors.Is(err, outbox.ErrNotFound), errors.Is(err, outbox.ErrFenced):
		n.forgetJob(j)
		return nil
	case outbox.FaultOf(err) == outbox.FaultUnknown && err != nil:
		// What was planned, if it was, is not known here: it is found where it waits.
		return errors.Join(err, n.readHeads(ctx, []outbox.Shard{j.Tenant.Shard}))
	case err != nil:
		if !hopelessStep(ctx, err) {
			return err
		}
		if j.tries++; j.tries < jobTries {
			return err
		}
		n.cfg.Log.ErrorContext(ctx, "a job cannot go on", "job", j.Name(), "tenant", j.TenantKey, "error", err)
		if step, err = n.cfg.Store.FailJob(ctx, lease, j.Job, n.cfg.Clock.Now()); err != nil {
			return err
		}
	}
	j.tries = 0
	n.stepped(j, step)
	j.nextAt = j.next(began, limit, step)
	return nil
}

// hopelessStep reports whether a step failed for a reason that does not go away by itself.
func hopelessStep(ctx context.Context, err error) bool {
	fault := outbox.FaultOf(err)
	return ctx.Err() == nil && !errors.Is(err, errNumbersForgotten) && (fault == outbox.FaultRefused || fault == outbox.FaultBroken)
}

// pace is how many deliveries the job may plan or cancel now, and what lies between two of them.
func (j *ownJob) pace() (limit int, spacing time.Duration) {
	limit = jobBatch
	ahead := int64(jobAhead)
	if j.Rate > 0 {
		spacing = time.Duration(float64(time.Second) / j.Rate)
		limit = max(1, min(jobBatch, int(j.Rate*jobRateStep.Seconds())))
		// A server that does not keep up must not be sent at once later what it was to get slowly.
		ahead = int64(2 * limit)
	}
	return int(max(0, min(int64(limit), ahead-j.Pending))), spacing
}

// next is when the job goes on after a step that began then.
func (j *ownJob) next(began time.Time, limit int, step outbox.JobStep) time.Time {
	_, spacing := j.pace()
	switch {
	case spacing > 0 && len(step.Due) > 0:
		return began.Add(time.Duration(len(step.Due)) * spacing)
	case step.Job.Scanned || limit == 0 || step.Job.State == outbox.JobStopping && len(step.Ended) == 0:
		return began.Add(jobLook)
	}
	return time.Time{}
}

// stepped works by what a step has changed.
func (n *Node) stepped(j *ownJob, step outbox.JobStep) {
	for _, id := range step.Erased {
		n.erased.add(j.Tenant.ID, id)
	}
	n.mu.Lock()
	j.Job = step.Job
	n.sched.erased(j.Tenant.ID, step.Erased)
	n.sched.drop(step.Ended)
	n.free(step.Freed)
	n.free(step.Due)
	n.mu.Unlock()
	wake(n.fetchNow)
	n.start()
	if len(step.Ended) > 0 && cancels(&step.Job) {
		n.cfg.Observe.Ended(len(step.Ended), j.Tenant.ID, outbox.DeadCancelled, n.cfg.Clock.Now())
	}
	if step.Job.State.Ended() {
		n.forgetJob(j)
		n.jobEnded(step.Job)
	}
}

// cancels reports whether what a step of the job ends is cancelled. A replay that is stopped puts
// most back to what they were, which is no end; only what was never planned before has none to go
// back to.
func cancels(j *outbox.Job) bool {
	return j.Type == outbox.JobCancellation || j.Type == outbox.JobReplay && j.Filter.State == outbox.ReplayMissing
}

// forgetJob lets go of a job, and of what its stopping holds back.
func (n *Node) forgetJob(j *ownJob) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.jobs[j.ID] == j {
		delete(n.jobs, j.ID)
	}
	n.sched.holdReplays(j.Tenant.ID, false)
}

// recallJob takes back what a replay has planned and nobody has sent. No replay of the tenant
// starts meanwhile: one that did would be taken back while it is on its way.
func (n *Node) recallJob(ctx context.Context, lease outbox.Lease, j *ownJob) (outbox.JobStep, error) {
	n.mu.Lock()
	n.sched.holdReplays(j.Tenant.ID, true)
	flying := n.sched.flying(j.Tenant.ID)
	n.mu.Unlock()
	step, err := n.cfg.Store.RecallJob(ctx, lease, j.Job, flying, jobBatch, n.cfg.Clock.Now())
	if err == nil && len(step.Ended) == 0 {
		// The rest is under way: others need not wait for that.
		n.mu.Lock()
		n.sched.holdReplays(j.Tenant.ID, false)
		n.mu.Unlock()
	}
	return step, err
}

// planMissing plans what of the next events was never planned for those who want it. Nothing is
// routed meanwhile, since both number what they plan: a number that is given and then not used
// would be a gap.
func (n *Node) planMissing(ctx context.Context, lease outbox.Lease, j *ownJob, limit int) (outbox.JobStep, error) {
	n.mu.Lock()
	subscribers := n.directory.subscribers(j.Tenant.ID)
	n.mu.Unlock()
	page, err := n.cfg.Store.MissingEvents(ctx, j.Job, max(1, limit/max(1, len(subscribers))))
	if err != nil {
		return outbox.JobStep{}, err
	}
	n.routing.Lock()
	defer n.routing.Unlock()
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	subscribers = n.directory.subscribers(j.Tenant.ID)
	n.mu.Unlock()
	missing, err := replay.Missing(ctx, n.cfg.Store, &j.Job, page, subscribers, now)
	if err != nil {
		return outbox.JobStep{}, err
	}
	next, err := n.number(ctx, missing)
	if err != nil {
		return outbox.JobStep{}, err
	}
	step, err := n.cfg.Store.PlanMissing(ctx, lease, j.Job, page, missing, next, now)
	if err != nil {
		n.mu.Lock()
		for id := range next {
			delete(n.numbers, id) // they are read again
		}
		n.mu.Unlock()
	}
	return step, err
}

// number numbers deliveries and returns the next numbers of their endpoints.
func (n *Node) number(ctx context.Context, deliveries []outbox.Delivery) (map[outbox.EndpointID]int64, error) {
	unknown := map[outbox.EndpointID]outbox.Shard{}
	n.mu.Lock()
	asked := n.lease
	for i := range deliveries {
		if _, known := n.numbers[deliveries[i].Endpoint]; !known {
			unknown[deliveries[i].Endpoint] = deliveries[i].Shard
		}
	}
	n.mu.Unlock()
	read := map[outbox.EndpointID]int64{}
	if len(unknown) > 0 {
		var err error
		if read, err = n.cfg.Store.NextSequences(ctx, unknown); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[outbox.EndpointID]int64{}
	for i := range deliveries {
		d := &deliveries[i]
		if _, known := n.numbers[d.Endpoint]; !known {
			first, ok := read[d.Endpoint]
			if !ok || !n.stillHolds(asked, d.Shard) {
				return nil, errNumbersForgotten
			}
			n.numbers[d.Endpoint] = first
		}
		d.Sequence = numbering(n.numbers).Next(d.Endpoint)
		next[d.Endpoint] = n.numbers[d.Endpoint]
	}
	return next, nil
}

// errNumbersForgotten: shards changed hands between reading the numbers and using them.
var errNumbersForgotten = errors.New("the endpoints' numbers were forgotten meanwhile")
