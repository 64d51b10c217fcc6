package postgres

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// wakeChannel is the name nodes LISTEN on.
	wakeChannel = "waybill_wake"
	// wakeEvery is the shortest time between two NOTIFYs of a node: what is told meanwhile goes
	// together. A NOTIFY takes a lock on the whole database at its commit.
	wakeEvery = 20 * time.Millisecond
	// wakePatience bounds one NOTIFY.
	wakePatience = 2 * time.Second
)

// Waker carries wake-ups between nodes by LISTEN and NOTIFY, each on a connection of its own:
// never in a publisher's transaction, where NOTIFY would make strangers' commits wait for each
// other. Where it fails, or a bouncer that pools transactions takes LISTEN away, nodes find
// everything by looking, a little later.
type Waker struct {
	pool *pgxpool.Pool // of one connection, for NOTIFY
	log  *slog.Logger

	mu      sync.Mutex
	waiting outbox.Wakeup
	more    chan struct{}
}

// NewWaker returns a waker for the database the store is on. Run makes it work.
func (s *Store) NewWaker(ctx context.Context) (*Waker, error) {
	config := s.pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Waker{pool: pool, log: s.log, more: make(chan struct{}, 1)}, nil
}

// Close ends the connection; Run must have returned.
func (w *Waker) Close() { w.pool.Close() }

// Wake tells the other nodes soon. It does not block.
func (w *Waker) Wake(up outbox.Wakeup) {
	w.mu.Lock()
	w.waiting = w.waiting.And(up)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Run sends and receives until ctx ends. heard is called with what any node told, this one
// included; it must not block.
func (w *Waker) Run(ctx context.Context, heard func(outbox.Wakeup)) {
	var both sync.WaitGroup
	both.Go(func() { w.sendLoop(ctx) })
	both.Go(func() { w.listenLoop(ctx, heard) })
	both.Wait()
}

func (w *Waker) sendLoop(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			w.send(context.WithoutCancel(ctx), w.take()) // the last words of a node that stops
			return
		case <-w.more:
		}
		err := w.send(ctx, w.take())
		if failed := err != nil; failed != failing && ctx.Err() == nil {
			failing = failed
			if failed {
				w.log.WarnContext(ctx, "cannot wake other nodes; they look for themselves", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wakeEvery):
		}
	}
}

func (w *Waker) take() outbox.Wakeup {
	w.mu.Lock()
	defer w.mu.Unlock()
	up := w.waiting
	w.waiting = outbox.Wakeup{}
	return up
}

func (w *Waker) send(ctx context.Context, up outbox.Wakeup) error {
	if up.IsZero() {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	return transactOn(within, w.pool, hot, func(b *pgx.Batch) error {
		// What is lost in a crash of the server would have woken nobody: no need to wait for the
		// disk while the lock is held.
		b.Queue(`SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`, wakeChannel, encodeWakeup(up))
		return nil
	})
}

func (w *Waker) listenLoop(ctx context.Context, heard func(outbox.Wakeup)) {
	if w.pool.Config().ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		// Asked to do without prepared statements, as behind a bouncer. There LISTEN would stay
		// with a connection that others use next.
		return
	}
	const longest = 15 * time.Second
	for wait := time.Second; ; wait = min(2*wait, longest) {
		began := time.Now()
		err := w.listen(ctx, heard)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longest {
			wait = time.Second
		}
		w.log.InfoContext(ctx, "does not hear other nodes for a while; it looks for itself", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// listen hears until the connection fails or ctx ends.
func (w *Waker) listen(ctx context.Context, heard func(outbox.Wakeup)) error {
	conn, err := pgx.ConnectConfig(ctx, w.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	if err := prepareConn(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel); err != nil {
		return err
	}
	for {
		told, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if up, err := decodeWakeup(told.Payload); err == nil { // a newer version may say more
			heard(up)
		}
	}
}

// encodeWakeup writes a flag byte and one bit a shard, in hexadecimal.
func encodeWakeup(up outbox.Wakeup) string {
	text := []byte{0}
	if up.Nodes {
		text[0] = 1
	}
	for _, word := range up.Outbox {
		text = binary.BigEndian.AppendUint64(text, word)
	}
	return hex.EncodeToString(text)
}

func decodeWakeup(payload string) (up outbox.Wakeup, err error) {
	text, err := hex.DecodeString(payload)
	if err != nil {
		return up, err
	}
	if len(text) != 1+8*len(up.Outbox) {
		return up, errors.New("not a wake-up")
	}
	up.Nodes = text[0]&1 != 0
	for i := range up.Outbox {
		up.Outbox[i] = binary.BigEndian.Uint64(text[1+8*i:])
	}
	return up, nil
}
