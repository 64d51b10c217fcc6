package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Config says how to reach the database.
type Config struct {
	// URL is a PostgreSQL connection string. It may name several hosts: the one that accepts
	// writes is used. Behind a bouncer that pools transactions and does not know prepared
	// statements add default_query_exec_mode=cache_describe.
	URL string
	// MaxConns bounds the connections for work; up to six more carry heartbeats, wake-ups and
	// upkeep. One is enough to work at all. 0: DefaultMaxConns.
	MaxConns int
	// Keyring seals endpoints' secrets and headers, and stored answers. nil: they can be neither
	// written nor read, which commands that only look at the books can do without.
	Keyring *keyring.Keyring
	// Log takes what is worth a person's attention but no caller can be told. nil: nothing.
	Log *slog.Logger
}

// DefaultMaxConns is Config.MaxConns where nobody says otherwise.
const DefaultMaxConns = 16

func (c Config) withDefaults() Config {
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Store is outbox.Store on PostgreSQL.
type Store struct {
	*server
	by *outbox.Author // whose changes are put on record; nil: nobody's
}

// server is what a store and those it was lent to (By) share.
type server struct {
	pool *pgxpool.Pool
	// pulse carries heartbeats alone: a node must not lose its shards because its own work uses
	// up every connection.
	pulse   *pgxpool.Pool
	keyring *keyring.Keyring
	log     *slog.Logger
	expiry  expiryCursors
}

var _ outbox.Store = (*Store)(nil)

// Open connects to a migrated database (CheckSchema).
func Open(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	pool, err := connect(ctx, c.URL, c.MaxConns)
	if err != nil {
		return nil, err
	}
	pulse, err := connect(ctx, c.URL, 2)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s := &Store{server: &server{pool: pool, pulse: pulse, keyring: c.Keyring, log: c.Log}}
	err = s.Ping(ctx)
	if err == nil {
		err = s.CheckSchema(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close waits for calls that still run.
func (s *Store) Close() error {
	s.pool.Close()
	s.pulse.Close()
	return nil
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return unreached(err)
	}
	return nil
}

// unreached says what to do about a database that does not let this program in.
func unreached(err error) error {
	pgErr, said := errors.AsType[*pgconn.PgError](err)
	_, dialled := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case said && pgErr.Code == "3D000":
		return fmt.Errorf("PostgreSQL: that server has no such database; make it (createdb) and run waybill migrate up: %w", err)
	case said && (pgErr.Code == "28P01" || pgErr.Code == "28000"):
		return fmt.Errorf("PostgreSQL: the server does not let this user in; is the password right, and does pg_hba.conf allow it? %w", err)
	case said && pgErr.Code == "53300":
		return fmt.Errorf("PostgreSQL: the server has no connection left; raise its max_connections or lower WAYBILL_DATABASE_MAX_CONNS: %w", err)
	case said:
		return fmt.Errorf("PostgreSQL: %w", err)
	case dialled:
		return fmt.Errorf("PostgreSQL: the server cannot be reached; does it run, and does the database URL name it? %w", err)
	}
	return fmt.Errorf("PostgreSQL: %w", err)
}

func connect(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", hidePassword(err))
	}
	config.MaxConns = int32(conns)
	config.MaxConnIdleTime = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, 5*time.Second)
	config.ConnConfig.DialFunc = dial
	config.ConnConfig.RuntimeParams["application_name"] = cmp.Or(config.ConnConfig.RuntimeParams["application_name"], "waybill")
	if severalHosts(config.ConnConfig) && config.ConnConfig.ValidateConnect == nil {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	switch config.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		// They do without prepared statements, which is what they are asked for, but also without
		// the types of the parameters, which arrays of ids need. This one has both.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	config.AfterConnect = prepareConn
	return pgxpool.NewWithConfig(ctx, config)
}

// severalHosts tells hosts from the fallbacks that try one host with and without TLS.
func severalHosts(c *pgx.ConnConfig) bool {
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

// prepareConn sets what holds for the whole connection. The server is told to notice a dead
// client within seconds, so that the locks of a lost node are gone before its shards are taken.
func prepareConn(ctx context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name:  "timestamptz",
		OID:   pgtype.TimestamptzOID,
		Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	_, err := conn.Exec(ctx, `
		SELECT set_config('tcp_keepalives_idle', '2', false),
		       set_config('tcp_keepalives_interval', '1', false),
		       set_config('tcp_keepalives_count', '3', false),
		       set_config('tcp_user_timeout', '5000', false)`, pgx.QueryExecModeExec)
	return err
}
