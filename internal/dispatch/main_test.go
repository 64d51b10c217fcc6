package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/waybill-dev/waybill/internal/sqlite"
)

// migrated is a database file with its tables and nothing in them: a rig starts from a copy, since
// making the tables takes longer than most of what is done with them.
var migrated []byte

func TestMain(m *testing.M) {
	var err error
	if migrated, err = makeMigrated(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func makeMigrated() ([]byte, error) {
	dir, err := os.MkdirTemp("", "waybill-dispatch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "test.db")
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
