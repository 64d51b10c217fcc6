package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/priority"
	"github.com/waybill-dev/waybill/internal/route"
	"github.com/waybill-dev/waybill/internal/thin"
)

// Store is what a node needs of the database.
type Store interface {
	outbox.Ownership
	outbox.Routing
	outbox.Dispatching
	outbox.Order
	outbox.Health
	outbox.Careful
	// By disables an endpoint whose server says it is gone, on record.
	By(author *outbox.Author) outbox.Store
	outbox.JobWork
	// MissingEvents and DeliveriesOf are for replays of what is missing.
	MissingEvents(ctx context.Context, job outbox.Job, limit int) (outbox.MissingPage, error)
	DeliveriesOf(ctx context.Context, tenant outbox.TenantRef, ids []outbox.DeliveryID) (map[outbox.DeliveryID]bool, error)
}

// Sender makes attempts. Do returns when the attempt has ended, at the latest when ctx ends or
// its own deadline passes.
type Sender interface {
	Prepare(e attempt.Endpoint) *attempt.Target
	Do(ctx context.Context, r attempt.Request) attempt.Outcome
}

// Config configures a Node.
type Config struct {
	Store  Store
	Sender Sender
	Clock  *outbox.Clock // anchored by the node's heartbeats
	Log    *slog.Logger

	// Left is told of an endpoint whose connections must not be used any more; nil: nobody is.
	Left func(endpoint outbox.EndpointID)

	// Thin makes the bodies of thin deliveries; nil: they carry the payload.
	Thin *thin.Links

	// Notify is told what the operator should hear of; it must not block. nil: nobody is.
	Notify func(Notice)

	// Observe is told what was done; nil: nobody is.
	Observe Observer

	// Isolation handles what may have killed a process. nil: it is handled in this one, with
	// nothing else of the kind beside it.
	Isolation Isolation

	// Wake tells the other nodes to look; nil: there are none.
	Wake Wake

	// Gate is where a crowd's rows give way to others' few; nil: they do not.
	Gate *priority.Gate

	// Exclusive says that no other process can run on this store, so all shards are taken at
	// once instead of after a former owner's beat has stood still.
	Exclusive bool
	// MaxInFlight bounds attempts at once; default 1,000.
	MaxInFlight int
	// Retry is the instance's policy; zero fields take outbox.DefaultRetry.
	Retry outbox.RetryPolicy
	// MaxPendingAge ends deliveries nobody could try; default 5 days.
	MaxPendingAge time.Duration
	// Grace is how long a stopping node waits for attempts in flight; default 35 s.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	if c.Notify == nil {
		c.Notify = func(Notice) {}
	}
	if c.Observe == nil {
		c.Observe = Observers(nil)
	}
	if c.Wake == nil {
		c.Wake = nobody{}
	}
	if c.Left == nil {
		c.Left = func(outbox.EndpointID) {}
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1000
	}
	c.Retry = c.Retry.Over(outbox.DefaultRetry)
	if c.MaxPendingAge == 0 {
		c.MaxPendingAge = 5 * 24 * time.Hour
	}
	if c.Grace == 0 {
		c.Grace = 35 * time.Second
	}
	return c
}

const (
	maxQueuedRows   = 200_000  // outbox rows in memory
	maxQueuedBytes  = 64 << 20 // their payloads
	maxReadyBytes   = 64 << 20 // payloads of deliveries ready to send
	maxUnrecorded   = 5_000    // results not yet in the database; beyond, nothing new starts
	maxFetchedBytes = 8 << 20  // payloads read at once
)

// Node owns shards and works for them. Create it with New, run it with Run.
type Node struct {
	cfg    Config
	id     outbox.NodeID
	tenure tenure

	mu        sync.Mutex // guards everything below
	sched     *scheduler
	queue     *route.Queue
	lease     outbox.Lease // replaced, never changed
	directory directory
	numbers   map[outbox.EndpointID]int64
	starved   map[outbox.Shard]starved   // rows there was no room for
	held      []heldWork                 // other nodes' attempts, see hold
	careful   map[outbox.Shard]time.Time // shards run carefully, until when
	rows      suspectRows
	draining  bool
	lastBeat  time.Time
	stall     stall
	jobs      map[outbox.JobID]*ownJob

	unordered map[outbox.EndpointID]outbox.EndpointRow // whose rows are not in line, see orderLoop

	fetchNow, pollNow, sweepNow, suspectNow, orderNow, jobNow chan struct{} // wake-ups, each of capacity 1

	// routing is shared by the routers, and had alone by planMissing, while deliveries are numbered
	// and written. It is taken before mu.
	routing  sync.RWMutex
	recorder recorder
	journal  journal
	reports  reports
	attempts sync.WaitGroup
	beating  turn // of the one heartbeat under way; guards watcher
	watcher  watcher
	goneOnes goneCounter
	panics   panicCounter
	erased   erased
	deaths   seldom // an hour
	ending   seldom // a day

	beatNow, heldNow chan struct{}    // wake-ups too
	routeNow         [2]chan struct{} // by class
	routedAt         [2]time.Time     // by class: when its router, who alone looks here, last began
}

// New returns a node that is not running yet.
func New(cfg Config) *Node {
	cfg = cfg.withDefaults()
	n := &Node{
		cfg:        cfg,
		id:         outbox.NewNodeID(cfg.Clock.Now()),
		sched:      newScheduler(limits{inFlight: cfg.MaxInFlight, unrecorded: maxUnrecorded, readyBytes: maxReadyBytes}),
		queue:      route.NewQueue(maxQueuedRows, maxQueuedBytes),
		directory:  newDirectory(),
		numbers:    map[outbox.EndpointID]int64{},
		starved:    map[outbox.Shard]starved{},
		fetchNow:   make(chan struct{}, 1),
		pollNow:    make(chan struct{}, 1),
		sweepNow:   make(chan struct{}, 1),
		orderNow:   make(chan struct{}, 1),
		unordered:  map[outbox.EndpointID]outbox.EndpointRow{},
		suspectNow: make(chan struct{}, 1),
		jobNow:     make(chan struct{}, 1),
		beating:    newTurn(),
		jobs:       map[outbox.JobID]*ownJob{},
		deaths:     seldom{every: time.Hour},
		ending:     seldom{every: 24 * time.Hour},
	}
	n.beatNow, n.heldNow = make(chan struct{}, 1), make(chan struct{}, 1)
	for class := range n.routeNow {
		n.routeNow[class] = make(chan struct{}, 1)
	}
	n.recorder.init()
	n.journal.init()
	n.lease = outbox.Lease{Node: n.id, Epochs: map[outbox.Shard]int64{}, Revisions: map[outbox.Shard]int64{}}
	return n
}

// ID returns the node's id, new in every run of the process.
func (n *Node) ID() outbox.NodeID { return n.id }

// Run works until ctx ends, then stops in order: nothing new starts, the shards are handed over,
// attempts in flight finish within the grace, their results are recorded, the node leaves. It
// returns an error if the node could not join, or if results were still unrecorded at the end
// (their deliveries are pending and will be sent again).
func (n *Node) Run(ctx context.Context) error {
	if !n.join(ctx) {
		return n.leave(ctx) // asked to stop meanwhile, which is no failure; the row may be there
	}
	// Loops that start work end with ctx; the heartbeat and the recorder go on until the last
	// attempt has ended.
	working, stopWorking := context.WithCancel(ctx)
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	recording, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	defer stopBeating()
	defer stopRecording()

	n.cfg.Wake.Wake(outbox.Wakeup{Nodes: true}) // the others have shards to spare now
	var loops, beat, records sync.WaitGroup
	beat.Go(func() { n.beatLoop(beating) })
	records.Go(func() { n.recordLoop(recording) })
	records.Go(func() { n.journalLoop(recording) })
	loops.Go(func() { n.heldLoop(working) })
	loops.Go(func() { n.intakeLoop(working) })
	loops.Go(func() { n.routeLoop(working, route.Few) })
	loops.Go(func() { n.routeLoop(working, route.Many) })
	loops.Go(func() { n.fetchLoop(working) })
	loops.Go(func() { n.suspectLoop(working) })
	loops.Go(func() { n.expireLoop(working) })
	loops.Go(func() { n.healthLoop(working) })
	loops.Go(func() { n.orderLoop(working) })
	loops.Go(func() { n.jobLoop(working) })

	<-ctx.Done()
	loops.Wait()
	err := n.stop()
	stopRecording()
	records.Wait()
	stopBeating()
	beat.Wait()
	n.tenure.cut()

	return errors.Join(err, n.leave(ctx))
}

// leave removes the node's row, also when ctx has ended.
func (n *Node) leave(ctx context.Context) error {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return n.cfg.Store.Leave(leaving, n.id)
}

// join registers the node, however long the database is away. It is false if ctx ended first.
func (n *Node) join(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := n.cfg.Store.Join(ctx, n.id, n.cfg.Clock.Now())
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		n.cfg.Log.WarnContext(ctx, "cannot join", "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// stop ends the node's work. Where another node can take over, the shards are handed over at
// once, so that nobody waits for a hanging attempt here; then what is in flight may finish.
func (n *Node) stop() error {
	n.mu.Lock()
	n.sched.paused = true
	n.draining = true
	n.mu.Unlock()
	if !n.cfg.Exclusive {
		// The others count their shares without this node before they find its shards free, or
		// they would leave them lying until its next heartbeat.
		if err := n.beat(context.Background()); err != nil {
			n.cfg.Log.Warn("cannot say that this node stops; others find out", "error", err)
		}
		n.release(n.Shards())
		n.cfg.Wake.Wake(outbox.Wakeup{Nodes: true})
	}
	if !n.waitQuiet(n.cfg.Grace) {
		n.tenure.cut()
		n.waitQuiet(2 * time.Second)
	}
	n.release(n.Shards())
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := n.sched.running + n.sched.pending; left > 0 {
		return errors.New("stopped with results unrecorded; their deliveries will be sent again")
	}
	return nil
}

func (n *Node) waitQuiet(within time.Duration) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		n.mu.Lock()
		quiet := n.sched.quiet()
		n.mu.Unlock()
		if quiet {
			return true
		}
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
}

// wake makes a loop look again; a wake-up that is already waiting is enough.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for d or the end of ctx, and reports whether it was d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
