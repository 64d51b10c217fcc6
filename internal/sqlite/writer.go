package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Bounds of one transaction of the writer.
const (
	maxJobs  = 256
	maxBatch = 25 * time.Millisecond // no more work is taken in once the transaction is this old
)

// writer owns the one connection that writes.
type writer struct {
	db      *sql.DB
	log     *slog.Logger
	jobs    chan *job
	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	session *session // of the goroutine; nil: to be opened
	// locking is when the transaction that is being begun asked for the file's write lock (Unix
	// nanoseconds); 0: none is.
	locking atomic.Int64
}

// waiting says for how long somebody else has held the file's write lock against us.
func (w *writer) waiting() time.Duration {
	since := w.locking.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

// job is one caller's work.
type job struct {
	run   func(w *session) error
	state atomic.Int32 // queued, then running or withdrawn
	done  chan struct{}
	err   error
	panic any // what run panicked with; raised again in its caller
}

const (
	queued int32 = iota
	running
	withdrawn
)

func startWriter(db *sql.DB, log *slog.Logger) *writer {
	w := &writer{
		db:      db,
		log:     log,
		jobs:    make(chan *job, maxJobs),
		closing: make(chan struct{}),
	}
	w.done.Go(w.loop)
	return w
}

// stop ends the writer; work it has not begun fails.
func (w *writer) stop() {
	w.once.Do(func() { close(w.closing) })
	w.done.Wait()
}

// write runs fn in a transaction and returns after the commit. fn must return the first error it
// meets and must not call the store. An error undoes what fn did, and nothing else. The error is
// fn's own if it is one of the domain's, else a *outbox.WriteError.
//
// A context that ends while fn waits for its turn withdraws it. Once it runs it runs to the
// answer, so that the caller always knows whether it was written.
//
// What an author does is put on record in the same transaction (outbox.Audit).
func (s *Store) write(ctx context.Context, fn func(w *session) error) error {
	if !s.by.Due() {
		return s.writer.do(ctx, fn)
	}
	err := s.writer.do(ctx, func(w *session) error {
		if err := fn(w); err != nil {
			return err
		}
		return note(w, &s.by.Entry)
	})
	if err == nil {
		s.by.Noted()
	}
	return err
}

func (w *writer) do(ctx context.Context, fn func(w *session) error) error {
	j := &job{run: fn, done: make(chan struct{})}
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		return notWritten(ctx.Err())
	case <-w.closing:
		return notWritten(errClosed)
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.state.CompareAndSwap(queued, withdrawn) {
			return notWritten(ctx.Err())
		}
		<-j.done
	case <-w.closing:
		if j.state.CompareAndSwap(queued, withdrawn) {
			return notWritten(errClosed)
		}
		<-j.done
	}
	if j.panic != nil {
		panic(j.panic)
	}
	return j.err
}

func (w *writer) loop() {
	defer func() {
		if w.session != nil {
			w.session.close()
		}
	}()
	for {
		select {
		case <-w.closing:
			return
		case first := <-w.jobs:
			w.batch(first)
		}
	}
}

// batch runs first, and what else is waiting, in one transaction, and answers them all.
func (w *writer) batch(first *job) {
	if !first.state.CompareAndSwap(queued, running) {
		return
	}
	began := time.Now()
	members := []*job{first}
	answer := func(err error) {
		for _, j := range members {
			if j.err == nil {
				j.err = err
			}
			close(j.done)
		}
	}
	if err := w.begin(); err != nil {
		answer(w.lost(err))
		return
	}
	for i := 0; i < len(members); i++ {
		if err := w.member(members[i]); err != nil {
			answer(w.lost(err))
			return
		}
		if len(members) < maxJobs && time.Since(began) < maxBatch {
			select {
			case next := <-w.jobs:
				if next.state.CompareAndSwap(queued, running) {
					members = append(members, next)
				}
			default:
			}
		}
	}
	// Dying before this line undoes every member, dying after it none; nobody was answered yet.
	if _, err := w.session.exec("COMMIT"); err != nil {
		answer(w.lost(err))
		return
	}
	answer(nil)
}

// begin opens the connection if need be and takes the write lock: at once, since a transaction
// that reads first and writes later can be refused in the middle.
func (w *writer) begin() error {
	if w.session == nil {
		conn, err := w.db.Conn(context.Background())
		if err != nil {
			return err
		}
		w.session = newSession(conn)
	}
	w.locking.Store(time.Now().UnixNano())
	defer w.locking.Store(0)
	_, err := w.session.exec("BEGIN IMMEDIATE")
	return err
}

// member runs one job under a savepoint. The error is not the job's: it says that the whole
// transaction is lost.
func (w *writer) member(j *job) error {
	if _, err := w.session.exec("SAVEPOINT member"); err != nil {
		return err
	}
	func() {
		defer func() { j.panic = recover() }()
		j.err = j.run(w.session)
	}()
	if j.err == nil && j.panic == nil {
		j.err = w.session.failed // a job that passed over an error has done half its work
	}
	w.session.failed = nil
	if j.err != nil || j.panic != nil {
		j.err = w.fault(j.err)
		// Where SQLite has ended the transaction by itself (disk full, I/O error) the savepoint
		// is gone, this fails, and with it everyone's work.
		if _, err := w.session.exec("ROLLBACK TO member"); err != nil {
			if cause, ok := errors.AsType[*outbox.WriteError](j.err); ok {
				return cause
			}
			return err
		}
	}
	_, err := w.session.exec("RELEASE member")
	return err
}

// lost ends a transaction that cannot be committed and says what its members are told.
func (w *writer) lost(err error) error {
	fault := w.fault(err)
	if w.session == nil {
		return fault
	}
	w.session.failed = nil
	if _, end := w.session.exec("ROLLBACK"); end != nil {
		// Either SQLite rolled back by itself, or the connection is of no more use. A new one
		// starts from what the file says.
		w.session.discard()
		w.session = nil
	}
	return fault
}

// fault classifies a member's or the transaction's error; full disks and failing ones are logged
// here, since the members may be many and each is only told to try again.
func (w *writer) fault(err error) error {
	if err == nil {
		return nil
	}
	fault := classify(err)
	if isDisk(err) {
		w.log.Error("the database file cannot be written", "error", err)
	}
	return fault
}
