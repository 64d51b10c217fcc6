package real

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
	"github.com/waybill-dev/waybill/waybilltest"
)

// An event whose transaction commits late has a lower id and a lower position than those already
// delivered. A reader that goes on from the highest it has seen would never see it.
func TestReal_aLateCommitIsDeliveredAndARollbackIsNot(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary")
	}
	dsn := pgtest.DSN(t)
	binary := program.Build(t)
	server := program.Serve(t, binary, dsn)
	receiver := waybilltest.NewReceiver(t)
	receiver.Trust(server.Endpoint("acme", receiver.URL))
	db := open(t, "pgx", dsn)
	publish := func(payload string) (tx *sql.Tx, id string) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		id, err = waybill.Publish(t.Context(), tx, waybill.Event{Tenant: "acme", Type: "ping", Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		return tx, id
	}
	end := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	late, first := publish(`{"published":"first"}`)
	undone, _ := publish(`{"published":"never"}`)
	early, second := publish(`{"published":"second"}`)
	if first >= second {
		t.Fatalf("the ids %s and %s do not sort by time", first, second)
	}
	end(early.Commit())
	if got := receiver.Await(1, time.Minute)[0]; got.ID != second || got.Sequence != 1 {
		t.Errorf("%s arrived with number %d, want %s with 1", got.ID, got.Sequence, second)
	}
	end(undone.Rollback())
	end(late.Commit())
	if got := receiver.Await(2, time.Minute)[1]; got.ID != first || got.Sequence != 2 {
		t.Errorf("%s arrived with number %d, want %s with 2", got.ID, got.Sequence, first)
	}

	// The transaction that was rolled back has left nothing behind, and the books say so.
	cmd := exec.CommandContext(t.Context(), binary, "verify")
	cmd.Env = append(os.Environ(), "WAYBILL_DATABASE_URL="+dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("waybill verify: %v\n%s", err, out)
	}
	for _, d := range receiver.Received() {
		if bytes.Contains(d.Body, []byte("never")) {
			t.Errorf("an event that was rolled back arrived: %s", d.Body)
		}
	}
}
