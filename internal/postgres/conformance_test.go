package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/outboxtest"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func TestStore_keepsTheContract(t *testing.T) {
	keys, err := keyring.New(keyring.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	outboxtest.Run(t, func(t *testing.T) outbox.Store {
		dsn := pgtest.DSN(t)
		store, err := postgres.Open(t.Context(), postgres.Config{URL: dsn, Keyring: keys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return &backdoored{Store: store, dsn: dsn}
	})
}

// backdoored lets the suite look at what is stored and damage it.
type backdoored struct {
	*postgres.Store
	dsn string
}

// beside runs work on a connection of its own.
func (b *backdoored) beside(ctx context.Context, work func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, b.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return work(conn)
}

func (b *backdoored) Exec(ctx context.Context, statement string) error {
	return b.beside(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, expand(statement))
		return err
	})
}

func (b *backdoored) Count(ctx context.Context, query string) (n int, err error) {
	err = b.beside(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, expand(query)).Scan(&n) })
	return n, err
}

func (b *backdoored) Dump(ctx context.Context) ([]byte, error) {
	var dump strings.Builder
	err := b.beside(ctx, func(conn *pgx.Conn) error {
		for _, table := range []string{"tenant", "endpoint", "idempotency", "source", "session", "api_key", "audit"} {
			rows, err := conn.Query(ctx, "SELECT * FROM waybill."+table)
			if err != nil {
				return err
			}
			for rows.Next() {
				values, err := rows.Values()
				if err != nil {
					return err
				}
				for _, v := range values {
					if raw, ok := v.([]byte); ok {
						v = string(raw)
					}
					fmt.Fprintln(&dump, v)
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return []byte(dump.String()), err
}

var table = regexp.MustCompile(`\{(\w+)\}`)

func expand(statement string) string {
	statement = strings.NewReplacer("{garbage}", `'\x0bad'`, "{nothing}", `'{}'`, "{odd}", `'{*,NULL}'`).Replace(statement)
	return table.ReplaceAllString(statement, "waybill.$1")
}
