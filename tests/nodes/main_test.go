package nodes

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// binary is the program under test, built once for the package.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("several nodes are tried without -short: what is tried takes its time")
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "waybill-nodes-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "waybill")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/waybill-dev/waybill/cmd/waybill").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	defer os.RemoveAll(dir)
	pgtest.Main(m)
}
