package postgres_test

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/outboxtest"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func TestStore_sealsAgain(t *testing.T) {
	dsn := pgtest.DSN(t)
	outboxtest.RunResealing(t, func(t *testing.T, keys *keyring.Keyring) outbox.Store {
		store, err := postgres.Open(t.Context(), postgres.Config{URL: dsn, Keyring: keys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	})
}
