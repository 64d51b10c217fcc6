package publish

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/priority"
)

// What Submit's caller can do about an error. Everything else is a defect or the caller's own
// context.
var (
	// ErrBusy: the queue is full or does not move. Nothing was stored; try again in a second.
	ErrBusy = errors.New("too many events are waiting to be stored")
	// ErrClosed: the process is stopping. Nothing was stored.
	ErrClosed = errors.New("the committer is closed")
	// ErrLocked: another request holds the same idempotency key or event id and has not ended.
	// Nothing was stored.
	ErrLocked = errors.New("another request holds the key")
	// ErrRefused: the database refuses the content. Nothing was stored.
	ErrRefused = errors.New("the database refuses the event")
	// ErrUnavailable: the database is away. Nothing was stored.
	ErrUnavailable = errors.New("the database is not available")
	// ErrUnknown: the connection broke during the commit, and the process stopped before the
	// database could be asked again. Whether the events are stored is not known.
	ErrUnknown = errors.New("it is not known whether the events are stored")
)

// Handoff takes stored events straight to the router of this process, which then need not read
// them back.
type Handoff interface {
	// Offer passes events whose commit was answered: kind event, Source set, with the payload.
	// It must not block; whatever it cannot take is found by reading the outbox.
	Offer(events []outbox.OutboxRow)
}

// Config says how to commit. Store is required; every other field's zero value is usable.
type Config struct {
	Store   outbox.Publishing
	Handoff Handoff        // nil: nobody to tell, the router reads the outbox
	Gate    *priority.Gate // bulk gives way here to what is small; nil: it does not
	Log     *slog.Logger

	// SmallEvents and SmallBytes are what a submission may hold to be a small one, 50 events and
	// 256 KiB, and what of one tenant may wait among the small ones, 100 events. All else is bulk,
	// and never in front of the small ones.
	SmallEvents int
	SmallBytes  int
	// MaxEvents and MaxBytes bound one transaction: 1,000 events, 4 MiB. A larger submission is
	// committed alone.
	MaxEvents int
	MaxBytes  int
	// Writers is how many transactions of each kind (keyed or not, small or bulk) may be under way: 2, so
	// that one's fsync overlaps the other's encoding.
	Writers int
	// QueueEvents and QueueBytes bound what is accepted and not yet answered, for each kind:
	// 20,000 events, 64 MiB.
	QueueEvents int
	QueueBytes  int
	// RetryFor is how long a batch of which certainly nothing is stored is retried before its
	// callers hear ErrUnavailable: 1.5 s, which outlasts a restart of the database.
	RetryFor time.Duration
	// QueueFor is how long a submission waits to be begun before its caller hears ErrBusy: 3 s.
	// Behind commits whose outcome is unknown it would wait for as long as the database is away,
	// although it is certain that nothing of it is stored. BulkQueueFor is for bulk, which gives
	// way: 10 s.
	QueueFor     time.Duration
	BulkQueueFor time.Duration
	// CommitTimeout bounds one call of the store: 10 s.
	CommitTimeout time.Duration
}

func (cfg Config) withDefaults() Config {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&cfg.SmallEvents, 50)
	set(&cfg.SmallBytes, 256<<10)
	set(&cfg.MaxEvents, 1000)
	set(&cfg.MaxBytes, 4<<20)
	set(&cfg.Writers, 2)
	set(&cfg.QueueEvents, 20_000)
	set(&cfg.QueueBytes, 64<<20)
	if cfg.RetryFor <= 0 {
		cfg.RetryFor = 1500 * time.Millisecond
	}
	if cfg.QueueFor <= 0 {
		cfg.QueueFor = 3 * time.Second
	}
	if cfg.BulkQueueFor <= 0 {
		cfg.BulkQueueFor = 10 * time.Second
	}
	if cfg.CommitTimeout <= 0 {
		cfg.CommitTimeout = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// Committer is the one writer of events that arrive over the network.
type Committer struct {
	cfg     Config
	plain   lanes
	keyed   lanes
	singles chan struct{} // slots for submissions that wait for a lock, off the keyed lane
	trouble trouble

	open    context.Context // ends with Close: what waits then gives way to nobody
	shut    context.CancelFunc
	life    context.Context // ends when Close's patience does
	abandon context.CancelFunc
	working sync.WaitGroup
}

// New starts a committer. Close stops it.
func New(cfg Config) *Committer {
	cfg = cfg.withDefaults()
	c := &Committer{
		cfg:     cfg,
		plain:   lanes{newLane(cfg, false), newLane(cfg, true)},
		keyed:   lanes{newLane(cfg, false), newLane(cfg, true)},
		singles: make(chan struct{}, 8),
		trouble: trouble{log: cfg.Log},
	}
	c.life, c.abandon = context.WithCancel(context.Background())
	c.open, c.shut = context.WithCancel(c.life)
	for _, l := range c.lanes() {
		for range cfg.Writers {
			c.working.Go(func() { c.write(l) })
		}
	}
	return c
}

func (c *Committer) lanes() []*lane {
	return []*lane{c.plain.small, c.plain.bulk, c.keyed.small, c.keyed.bulk}
}

// Submit stores the events, all or none, and returns their answers in the same order once they
// are durable. If some meet something else under the same id or key, nothing is stored and the
// conflicts say which. The caller must leave the events and their payloads alone afterwards.
//
// When ctx ends first the caller no longer learns the outcome: a submission not yet begun is
// dropped, one under way goes on to its end.
func (c *Committer) Submit(ctx context.Context, events []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	if len(events) == 0 {
		return nil, nil, nil
	}
	s := newSubmission(events)
	l := c.plain.of(s)
	if s.keyed {
		l = c.keyed.of(s)
	}
	if err := l.put(s); err != nil {
		return nil, nil, err
	}
	wait := c.cfg.QueueFor
	if l.bulk {
		wait = c.cfg.BulkQueueFor
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	for {
		select {
		case out := <-s.done:
			return out.accepted, out.conflicts, out.err
		case <-ctx.Done():
			l.drop(s)
			return nil, nil, ctx.Err()
		case <-patience.C:
			if l.drop(s) {
				return nil, nil, ErrBusy
			}
			// It is under way, and only its answer can say what became of it.
		}
	}
}

// Close refuses new submissions, commits what is waiting and returns when all of it is
// answered. When ctx ends first, what is left is answered with an error.
func (c *Committer) Close(ctx context.Context) error {
	c.shut()
	for _, l := range c.lanes() {
		l.close()
	}
	ended := make(chan struct{})
	go func() {
		c.working.Wait()
		close(ended)
	}()
	defer c.abandon()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		c.abandon()
		<-ended
		return ctx.Err()
	}
}

// write is one writer's loop: take what waits, commit it, answer it.
func (c *Committer) write(l *lane) {
	for {
		batch, ok := l.take()
		if !ok {
			return
		}
		if l.bulk {
			done := c.cfg.Gate.Bulk(c.open)
			c.settle(l, batch)
			done()
			continue
		}
		began := time.Now()
		c.settle(l, batch)
		c.cfg.Gate.Small(count(batch), time.Since(began))
	}
}
