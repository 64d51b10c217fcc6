package quarantine

import (
	"encoding/gob"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
)

// orphan starts a child, gives it an attempt, closes the pipe as a dying parent would, and returns
// how the child ended.
func orphan(t *testing.T, e attempt.Endpoint) error {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, Command)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var h hello
	if err := gob.NewDecoder(stdout).Decode(&h); err != nil {
		t.Fatal(err)
	}
	o := runner(t).cfg.Settings.order(time.Now())
	o.Attempt = &attemptOrder{Endpoint: e, Payload: []byte(`{}`)}
	if err := gob.NewEncoder(stdin).Encode(o); err != nil {
		t.Fatal(err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	return cmd.Wait()
}
