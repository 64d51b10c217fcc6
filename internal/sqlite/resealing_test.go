package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/outboxtest"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

func TestStore_sealsAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	outboxtest.RunResealing(t, func(t *testing.T, keys *keyring.Keyring) outbox.Store {
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Keyring: keys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	})
}
