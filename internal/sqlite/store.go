package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	driver "modernc.org/sqlite"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

var _ outbox.Store = (*Store)(nil)

// Config says which file to open and how.
type Config struct {
	// Path of the database file; it is made if missing.
	Path string
	// Keyring seals secrets. Without one (verify) they cannot be read, and endpoints that have
	// any come with their Fault set.
	Keyring *keyring.Keyring
	// Log takes what no caller learns; nil discards it.
	Log *slog.Logger
	// Readers is how many reads run at once; 0 means 4.
	Readers int
}

// Store is an outbox.Store in a SQLite file.
type Store struct {
	*file
	by *outbox.Author // whose changes are put on record; nil: nobody's
}

// file is what a store and those it was lent to (By) share.
type file struct {
	log    *slog.Logger
	keys   *keyring.Keyring
	writes *sql.DB // one connection, the writer's
	reads  *sql.DB
	pool   chan *session // idle read sessions; nil: not opened yet
	writer *writer
	sweep  sweep

	closed    chan struct{}
	closeOnce sync.Once
	closeErr  error
}

// Open opens the file, brings its tables up to date, and starts the writer.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, errors.New("sqlite: no path")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Readers == 0 {
		cfg.Readers = 4
	}
	chooseSystemCalls()
	if err := create(cfg.Path); err != nil {
		return nil, fmt.Errorf("sqlite: %w", placed(cfg.Path, err))
	}
	// The WAL is copied into the file within a commit every 4,000 pages, 16 MB: 40 ms for whoever
	// waits then. More often costs more in all; doing it beside the writer made the longest waits
	// longer, since both then wait for the same disk.
	writes, err := sql.Open("sqlite", dsn(cfg.Path, "cache_size(-32768)", "wal_autocheckpoint(4000)"))
	if err != nil {
		return nil, err
	}
	writes.SetMaxOpenConns(1)
	if err := migrate(ctx, writes); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: %w", placed(cfg.Path, err)), writes.Close())
	}
	reads, err := sql.Open("sqlite", dsn(cfg.Path, "cache_size(-4096)", "query_only(1)"))
	if err != nil {
		return nil, errors.Join(err, writes.Close())
	}
	s := &Store{file: &file{
		log:    cfg.Log,
		keys:   cfg.Keyring,
		writes: writes,
		reads:  reads,
		pool:   make(chan *session, cfg.Readers),
		closed: make(chan struct{}),
	}}
	for range cfg.Readers {
		s.pool <- nil
	}
	s.writer = startWriter(writes, cfg.Log)
	return s, nil
}

// create makes a new file that nobody else can read: it holds everybody's payloads. SQLite gives
// the files beside it the same mode. One that exists is left alone, and not even opened: closing
// it again could drop locks this process has on it.
func create(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// chooseSystemCalls sets what the driver keeps for the whole process. fdatasync skips the
// journal write for the file's timestamps, half of a commit on ext4, and loses nothing. Locks of
// the open file description outlive the closing of another descriptor of the same file: without
// them, anything in this process that merely reads the database file would drop our locks on it.
func chooseSystemCalls() {
	// Both are refused where the platform has no such thing, or a database was opened before:
	// the driver then goes on with its defaults, which are safe as well.
	_, _ = driver.Fdatasync(true)
	_, _ = driver.OFDLocking(true)
}

// dsn names the file with the pragmas every connection to it must have, and more.
func dsn(path string, pragmas ...string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // file: URLs have no relative paths
	}
	q := url.Values{"_pragma": append([]string{
		"busy_timeout(5000)", // a publisher in another process may hold the write lock
		"foreign_keys(1)",
		"journal_mode(wal)",
		"synchronous(full)",
		"temp_store(memory)",
	}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}).String()
}

// Close ends the writer after what it has taken on, waits for running reads, and closes the file.
// The last to close it folds the WAL into it.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.writer.stop()
		close(s.closed)
		for range cap(s.pool) {
			if r := <-s.pool; r != nil {
				r.close()
			}
		}
		s.closeErr = errors.Join(s.reads.Close(), s.writes.Close())
	})
	return s.closeErr
}

// read runs fn in a read transaction: everything it sees is of one moment.
func (s *Store) read(ctx context.Context, fn func(r *session) error) (err error) {
	var r *session
	select {
	case r = <-s.pool:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return errClosed
	}
	defer func() { s.pool <- r }()
	if r == nil {
		conn, err := s.reads.Conn(ctx)
		if err != nil {
			return err
		}
		r = newSession(conn)
	}
	if _, err := r.exec("BEGIN"); err != nil {
		r.discard()
		r = nil
		return err
	}
	defer func() {
		// A panic ends the transaction too: the session goes back to the pool.
		r.failed = nil
		if _, end := r.exec("ROLLBACK"); end != nil {
			r.discard()
			r = nil
			err = errors.Join(err, end)
		}
	}()
	return fn(r)
}

// Ping reports whether the file can be read.
func (s *Store) Ping(ctx context.Context) error {
	return s.read(ctx, func(r *session) error {
		var one int
		return r.get("SELECT one FROM waybill_setting", nil, &one)
	})
}
