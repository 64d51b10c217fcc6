package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// oneConn opens a store whose pool has a single connection.
func oneConn(t *testing.T) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.DSN(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// Upkeep runs at every start. It must not wait for a second connection while it holds the first.
func TestStore_upkeepLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now := time.Now()
	err := oneConn(t).Maintain(ctx, outbox.Maintenance{Now: now, Retention: 30 * 24 * time.Hour, IdempotencyRetention: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore_waitingForAConnectionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a call waits for a connection")
	}
	t.Parallel()
	store := oneConn(t)
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, _, err := store.PutTenant(t.Context(), "acme", time.Now(), func(*outbox.Tenant, bool) error {
			close(held)
			<-release
			return context.Canceled
		})
		ended <- err
	}()
	<-held
	began := time.Now()
	_, err := store.Tenant(context.Background(), "acme")
	if took := time.Since(began); outbox.FaultOf(err) != outbox.FaultRetry || !strings.Contains(err.Error(), "no connection was free") || took > 40*time.Second {
		t.Errorf("%v after %v, want a refusal that says later", err, took)
	}
	close(release)
	<-ended
}
