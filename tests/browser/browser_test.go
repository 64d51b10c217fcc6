package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/tests/node"
	"github.com/waybill-dev/waybill/tests/program"
)

// What the process outside hands to the one inside.
const (
	binaryVariable  = "WAYBILL_BROWSER_TESTS_BINARY"
	modulesVariable = "WAYBILL_BROWSER_TESTS_MODULES"
)

// prepare builds the program and installs the npm packages, while there is a network.
func prepare(cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	modules, err := node.Install(ctx)
	if err != nil {
		return err
	}
	binary, err := program.Binary(ctx)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, binaryVariable+"="+binary, modulesVariable+"="+modules)
	return nil
}

// TestPages_inABrowser runs every flow, each as a subtest.
func TestPages_inABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes a minute")
	}
	network(t)
	control := serveReceivers(t)
	binary := os.Getenv(binaryVariable)
	place := program.NewInstance(t, binary, "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	place.Env = []string{"WAYBILL_PORTAL_FRAME_ANCESTORS=" + control}
	running := place.Start()
	t.Cleanup(running.Stop)

	pictures, err := filepath.Abs("../screenshots")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := json.Marshal(map[string]string{
		"base": "http://" + place.Listen, "key": place.APIKey, "control": control, "pictures": pictures, "only": os.Getenv("WAYBILL_BROWSER_TESTS_ONLY"),
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "run.cjs", string(settings))
	cmd.Env = append(os.Environ(), "NODE_PATH="+os.Getenv(modulesVariable))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	lines, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := 0
	for scan := bufio.NewScanner(lines); scan.Scan(); {
		var flow struct {
			Name   string   `json:"name"`
			Took   int      `json:"ms"`
			Faults []string `json:"faults"`
		}
		if err := json.Unmarshal(scan.Bytes(), &flow); err != nil {
			t.Errorf("the flows said: %s", scan.Text())
			continue
		}
		told++
		t.Run(flow.Name, func(t *testing.T) {
			t.Logf("%d ms", flow.Took)
			for _, fault := range flow.Faults {
				t.Error(fault)
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the flows: %v", err)
	}
	if told == 0 {
		t.Error("no flow ran")
	}
}
