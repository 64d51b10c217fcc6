package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
)

// Standby runs a streaming replica of the server. With the primary's setting
// synchronous_standby_names = '*' a commit is answered once the standby has it too. It is gone
// when the test ends.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	standby, err := s.replica()
	if err != nil {
		tb.Fatalf("pgtest: standby: %v", err)
	}
	standby.tb = tb
	tb.Cleanup(standby.remove)
	return standby
}

func (s *Server) replica() (*Server, error) {
	standby, err := home()
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Server, error) {
		standby.remove()
		return nil, err
	}
	if err := standby.run("pg_basebackup", "-D", standby.data(), "-R", "-X", "stream", "-c", "fast",
		"-h", s.host, "-p", strconv.Itoa(s.port), "-U", "postgres", "--no-sync"); err != nil {
		return fail(err)
	}
	settings, err := standby.place()
	if err != nil {
		return fail(err)
	}
	settings["synchronous_standby_names"] = "" // once promoted it is alone
	file, err := os.OpenFile(standby.conf(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fail(err)
	}
	if _, err := file.Write(written(settings)); err != nil {
		return fail(err)
	}
	if err := file.Close(); err != nil {
		return fail(err)
	}
	if err := standby.start(); err != nil {
		return fail(err)
	}
	return standby, nil
}

// Promote makes a standby a primary that takes writes.
func (s *Server) Promote() {
	s.tb.Helper()
	if err := s.run("pg_ctl", "promote", "-w", "-t", "60", "-s", "-D", s.data()); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// DSNWith names the migrated database on this server and on others, whichever takes writes.
func (s *Server) DSNWith(others ...*Server) string {
	hosts := net.JoinHostPort(s.host, strconv.Itoa(s.port))
	for _, o := range others {
		hosts += "," + net.JoinHostPort(o.host, strconv.Itoa(o.port))
	}
	return fmt.Sprintf("postgres://postgres@%s/waybill?sslmode=disable&target_session_attrs=read-write", hosts)
}

// Set changes a setting of a running server that needs no restart.
func (s *Server) Set(name, value string) {
	s.tb.Helper()
	ctx := context.Background()
	for _, statement := range []string{
		fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value),
		"SELECT pg_reload_conf()",
	} {
		if err := execute(ctx, s.dsn("postgres"), statement); err != nil {
			s.tb.Fatalf("pgtest: %s: %v", statement, err)
		}
	}
}
