package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/tests/loopback"
)

// Server is a throw-away PostgreSQL of its own, for a test that must stop it.
type Server struct {
	bin      string // directory of pg_ctl
	dir      string // private: data, socket, log
	host     string // an address of its own, so that its port is free when it starts again
	port     int
	account  *syscall.SysProcAttr // who runs it; the server refuses to run as root
	watchdog io.Closer
	running  bool
	tb       testing.TB // nil for the shared server
}

// Start runs a private server with the given settings (name to value, as in postgresql.conf)
// and a migrated database. Everything it writes is durable unless a setting says otherwise.
// It is gone when the test ends.
func Start(tb testing.TB, settings map[string]string) *Server {
	tb.Helper()
	s, err := launch(settings)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s.tb = tb
	tb.Cleanup(s.remove)
	if err := s.prepare("waybill"); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return s
}

// DSN names the server's migrated database.
func (s *Server) DSN() string { return s.dsn("waybill") }

// Stop kills the server at once, as a crash would: nothing is flushed, connections break.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.stop(); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// Start runs the server again, on the same port, after Stop.
func (s *Server) Start() {
	s.tb.Helper()
	if err := s.start(); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("postgres://postgres@%s:%d/%s?sslmode=disable", s.host, s.port, database)
}

// prepare makes an empty database and migrates it.
func (s *Server) prepare(database string) error {
	ctx := context.Background()
	if err := execute(ctx, s.dsn("postgres"), "CREATE DATABASE "+pgx.Identifier{database}.Sanitize()); err != nil {
		return err
	}
	return postgres.Migrate(ctx, s.dsn(database), postgres.Up)
}

// launch makes a cluster in a private directory and runs it.
func launch(settings map[string]string) (*Server, error) {
	s, err := home()
	if err != nil {
		return nil, err
	}
	// No sync: a crash of the machine while a test starts need not be survived.
	if err := s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		s.remove()
		return nil, err
	}
	if err := errors.Join(s.configure(settings), s.start()); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// home makes the private directory of a server that is not there yet.
func home() (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	account, uid, err := account()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "waybill-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, account: account}
	if err := os.Chown(dir, uid, -1); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// configure writes the settings, with an address of its own.
func (s *Server) configure(settings map[string]string) error {
	all, err := s.place()
	if err != nil {
		return err
	}
	maps.Copy(all, map[string]string{
		"max_connections": "200",
		"shared_buffers":  "128MB",
		"max_wal_size":    "1GB",
		"timezone":        "UTC",
		"log_line_prefix": "%m [%p] ",
	})
	maps.Copy(all, settings)
	return os.WriteFile(s.conf(), written(all), 0o644)
}

// place chooses where the server listens.
func (s *Server) place() (map[string]string, error) {
	var err error
	if s.host, s.port, err = loopback.Address(); err != nil {
		return nil, err
	}
	return map[string]string{
		"listen_addresses":        s.host,
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.dir,
	}, nil
}

// written are settings as the server's file has them.
func written(settings map[string]string) []byte {
	var conf []byte
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		conf = fmt.Appendf(conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return conf
}

func (s *Server) conf() string { return filepath.Join(s.data(), "postgresql.auto.conf") }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) start() error {
	err := s.run("pg_ctl", "start", "-w", "-t", "60", "-s", "-D", s.data(), "-l", filepath.Join(s.dir, "log"))
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // as much as there is; the error stands without
		return fmt.Errorf("%w\n%s", err, log)
	}
	s.running = true
	return nil
}

func (s *Server) stop() error {
	if !s.running {
		return nil
	}
	s.running = false
	return s.run("pg_ctl", "stop", "-w", "-t", "60", "-s", "-m", "immediate", "-D", s.data())
}

// remove stops the server through its watchdog, which is the one way that also works when this
// process is killed, and waits for its directory to disappear.
func (s *Server) remove() {
	s.watchdog.Close()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// watch starts a shell that stops the server and deletes its directory as soon as its input
// ends, which the kernel sees to however this process ends. It has a session of its own, so
// that Ctrl-C in a terminal does not reach it.
func (s *Server) watch() error {
	const script = `cat >/dev/null
"$1/pg_ctl" stop -s -w -t 20 -m immediate -D "$2/data"
rm -rf "$2"`
	cmd := exec.Command("/bin/sh", "-c", script, "watchdog", s.bin, s.dir)
	cmd.Dir = "/"
	attr := *s.account
	attr.Setsid = true
	cmd.SysProcAttr = &attr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // reaps it; how it ended does not matter
	s.watchdog = input
	return nil
}

// run runs one of the server's programs to its end.
func (s *Server) run(program string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = s.account
	// Not a pipe: pg_ctl's child keeps it open, and Wait would wait for the server.
	out, err := os.CreateTemp("", "waybill-pg-output-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name()) // as much as there is; the error stands without
		return fmt.Errorf("%s: %w\n%s", program, err, said)
	}
	return nil
}

// binaries finds the installed server: the newest of Debian's directories, else PATH.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("pg_ctl")
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL server is installed (Debian: apt-get install postgresql): %w", err)
	}
	return filepath.Dir(path), nil
}

// version is the major version in /usr/lib/postgresql/15/bin/pg_ctl.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 sorts an odd name first
	return n
}

// account says as whom the server runs: ourselves, or postgres where we are root.
func account() (*syscall.SysProcAttr, int, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, os.Getuid(), nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, 0, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, 0, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, 0, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, int(uid), nil
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
