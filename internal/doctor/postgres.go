package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
)

const (
	// spareConns is what one process uses beyond its connections for work.
	spareConns = 6
	// maxSkew is a difference of clocks that people begin to notice in logs. Waybill itself goes by
	// the database's time.
	maxSkew = 2 * time.Second
	// slowCommit is a commit that makes one machine's figures hard to reach.
	slowCommit = 20 * time.Millisecond
	// oldTransaction keeps dead rows and old partitions from being removed.
	oldTransaction = 10 * time.Minute
	leastDaysAhead = 3
)

// server examines a PostgreSQL server.
func server(ctx context.Context, cfg *config.Config) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, cfg.DatabaseURL.Reveal())
	if err != nil {
		return []Finding{{"database", Failure, cfg.Database() + " cannot be reached.",
			"Check that it runs, the address, the role and its password, and pg_hba.conf; psql with the same address says more."}}
	}
	defer conn.Close(context.WithoutCancel(ctx))
	x := &examination{ctx: ctx, conn: conn}
	x.identity(cfg)
	x.settings()
	x.connections(cfg)
	x.clock()
	x.commit()
	x.schema(cfg)
	return x.findings
}

// examination collects findings over one connection.
type examination struct {
	ctx      context.Context
	conn     *pgx.Conn
	findings []Finding
}

func (x *examination) add(subject string, grade Grade, detail, advice string) {
	x.findings = append(x.findings, Finding{subject, grade, detail, advice})
}

// ask reads one row; a question that cannot be answered is a finding.
func (x *examination) ask(subject, query string, dest ...any) bool {
	if err := x.conn.QueryRow(x.ctx, query).Scan(dest...); err != nil {
		x.add(subject, Warning, "It could not be looked at.", "The role may not be allowed to: "+err.Error())
		return false
	}
	return true
}

func (x *examination) identity(cfg *config.Config) {
	var version, number string
	var standby bool
	if !x.ask("database", "SELECT split_part(version(), ' ', 2), current_setting('server_version_num'), pg_is_in_recovery()", &version, &number, &standby) {
		return
	}
	n, _ := strconv.Atoi(number)
	switch {
	case standby:
		x.add("database", Failure, cfg.Database()+" is a standby and takes no writes.", "Name the primary, or all hosts: the one that takes writes is used.")
	case n < 150000:
		x.add("database", Failure, "PostgreSQL "+version+" is too old.", "Waybill needs 15 or newer.")
	default:
		x.add("database", OK, "PostgreSQL "+version+" at "+cfg.Database()+".", "")
	}
}

// settings looks at those that decide whether "accepted" means durable, and that keep tables small.
func (x *examination) settings() {
	var d postgres.Durability
	var autovacuum string
	var idle bool
	if !x.ask("durability", postgres.DurabilityQuery, &d.Fsync, &d.FullPageWrites, &d.SynchronousCommit, &d.Standbys) {
		return
	}
	switch reason, advice := d.Weakness(); {
	case reason != "":
		x.add("durability", Failure, reason, advice)
	case d.Standbys == "":
		x.add("durability", OK, "Commits are on this server's disk before they are answered.", "")
	default:
		x.add("durability", OK, "Commits are on this server's disk and with its synchronous standbys ("+d.SynchronousCommit+") before they are answered.", "")
	}
	if !x.ask("autovacuum", "SELECT current_setting('autovacuum'), current_setting('idle_in_transaction_session_timeout') <> '0'", &autovacuum, &idle) {
		return
	}
	if autovacuum != "on" {
		x.add("autovacuum", Failure, "autovacuum is off: queue tables grow without end.", "Set autovacuum = on.")
	}
	if !idle {
		x.add("idle transactions", OK, "Sessions of others may stay idle inside a transaction for ever.",
			"idle_in_transaction_session_timeout ends them; Waybill sets it for its own.")
	}
}

func (x *examination) connections(cfg *config.Config) {
	var most, reserved, used int
	if !x.ask("connections", `
		SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
		       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`, &most, &reserved, &used) {
		return
	}
	needed := cfg.DatabaseMaxConns
	if needed == 0 {
		needed = postgres.DefaultMaxConns
	}
	needed += spareConns
	free := most - reserved - used
	detail := fmt.Sprintf("%d of %d connections are in use; a process of Waybill takes up to %d.", used, most-reserved, needed)
	if free < needed {
		x.add("connections", Warning, detail, "Raise max_connections, put a pooler in front, or lower WAYBILL_DATABASE_MAX_CONNS: one is enough to work at all.")
		return
	}
	x.add("connections", OK, detail, "")
}

func (x *examination) clock() {
	var there time.Time
	before := time.Now()
	if !x.ask("clock", "SELECT clock_timestamp()", &there) {
		return
	}
	took := time.Since(before)
	skew := there.Sub(before.Add(took / 2)).Round(time.Millisecond)
	detail := fmt.Sprintf("The database's clock differs from this machine's by %v.", skew)
	if skew.Abs() > maxSkew+took {
		x.add("clock", Warning, detail, "Signatures and schedules follow the database's clock: it is the one to keep right. Run an NTP client on both.")
		return
	}
	x.add("clock", OK, detail, "")
}

// commit measures what one durable transaction costs. It writes nothing that stays: a transaction
// id is enough to have the log flushed.
func (x *examination) commit() {
	times := make([]time.Duration, 0, 9)
	for range cap(times) {
		began := time.Now()
		if _, err := x.conn.Exec(x.ctx, "SELECT pg_current_xact_id()"); err != nil {
			return // a standby, which was said
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	median := times[len(times)/2].Round(10 * time.Microsecond)
	detail := fmt.Sprintf("A commit takes %v.", median)
	if median > slowCommit {
		x.add("commit", Warning, detail, "Events are accepted in batches, so this adds to latency more than to throughput; a disk with a protected write cache helps.")
		return
	}
	x.add("commit", OK, detail, "")
}

// schema looks at Waybill's own tables.
func (x *examination) schema(cfg *config.Config) {
	store, err := postgres.Open(x.ctx, postgres.Config{URL: cfg.DatabaseURL.Reveal(), MaxConns: 1})
	if errors.Is(err, postgres.ErrSchema) {
		x.add("schema", Failure, err.Error(), "Run waybill migrate up.")
		return
	}
	if err != nil {
		x.add("schema", Failure, "The schema cannot be opened.", err.Error())
		return
	}
	defer store.Close()
	vitals, err := store.Vitals(x.ctx, time.Now())
	if err != nil {
		x.add("schema", Warning, "The tables cannot be looked at.", err.Error())
		return
	}
	x.findings = append(x.findings, tables(vitals)...)
}

// tables judges how the tables stand.
func tables(v outbox.Vitals) []Finding {
	found := []Finding{{Subject: "size", Grade: OK, Detail: fmt.Sprintf("%d deliveries are pending, %d dead letters are kept; the database takes up %s.", v.Pending, v.DeadLetters, config.FormatSize(v.Bytes))}}
	if v.PartitionDaysAhead < leastDaysAhead {
		found = append(found, Finding{"partitions", Failure, fmt.Sprintf("Only the next %d days can take events.", v.PartitionDaysAhead),
			"A running server makes a week ahead. Its log says what keeps it from doing so; SELECT waybill.add_partition('event', date) makes one by hand."})
	} else {
		found = append(found, Finding{Subject: "partitions", Grade: OK, Detail: fmt.Sprintf("The next %d days can take events.", v.PartitionDaysAhead)})
	}
	if v.OldestTransaction > oldTransaction {
		found = append(found, Finding{"transactions", Warning, fmt.Sprintf("A transaction has been open for %v.", v.OldestTransaction.Round(time.Second)),
			"Nothing that is done after its start can be cleaned up. pg_stat_activity names it."})
	}
	return found
}
