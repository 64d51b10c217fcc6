package nodes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

// binary is the program under test, built once for the package.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("several nodes are tried without -short: what is tried takes its time")
		os.Exit(0)
	}
	// Those that run side by side wait for dead nodes to be missed, most of the time.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if binary, err = program.Binary(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pgtest.Main(m)
}
