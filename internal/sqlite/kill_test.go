package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// childPath makes this test binary a publisher that writes to the file until it is killed.
const childPath = "WAYBILL_TEST_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		if err := publishForEver(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// publishForEver publishes from several goroutines and prints each event's id once it is
// answered.
func publishForEver(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	tenant, err := s.Tenant(ctx, "acme")
	if err != nil {
		return err
	}
	var out sync.Mutex
	failed := make(chan error)
	for range 8 {
		go func() {
			for {
				batch := []outbox.NewEvent{newEvent(tenant.TenantRef), newEvent(tenant.TenantRef)}
				accepted, _, err := s.InsertEvents(ctx, batch)
				if err != nil {
					failed <- err
					return
				}
				out.Lock()
				for _, a := range accepted {
					fmt.Println(a.ID)
				}
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// Whatever was answered is there after the process was killed between any two lines, and the
// books hold at every moment, looked at from another process beside the one that writes.
func TestStore_killedWhileWritingLosesNothingItAnswered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	s := storeAt(t, path)
	newTenant(t, s)
	answered := map[outbox.EventID]bool{}
	for kill := range 5 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childPath+"="+path)
		child.Stderr = os.Stderr
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(stdout)
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break // a last half line was cut off with its process
			}
			if err != nil {
				t.Fatal(err)
			}
			id, err := outbox.ParseEventID(line[:len(line)-1])
			if err != nil {
				t.Fatal(err)
			}
			answered[id] = true
			if n == 100 { // in the midst of its writing
				report, err := s.Verify(t.Context(), true)
				if err != nil || !report.Balanced() {
					t.Fatalf("beside a writer: %+v, %v", report, err)
				}
			}
			if n == 200+37*kill {
				if err := child.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // killed
	}
	if len(answered) < 1000 {
		t.Fatalf("only %d events were answered", len(answered))
	}
	s = storeAt(t, path)
	var health string
	if err := s.read(t.Context(), func(r *session) error { return r.get("PRAGMA integrity_check", nil, &health) }); err != nil || health != "ok" {
		t.Errorf("integrity check: %s, %v", health, err)
	}
	lost := 0
	for id := range answered {
		if s.count(t, "SELECT count(*) FROM waybill_event v JOIN waybill_outbox o ON o.event = v.id WHERE v.id = ?", id[:]) != 1 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d answered events are lost", lost, len(answered))
	}
	report, err := s.Verify(t.Context(), true)
	if err != nil || !report.Balanced() || report.Waiting < int64(len(answered)) {
		t.Errorf("%+v, %v", report, err)
	}
}
