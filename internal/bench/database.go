package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/postgres"
)

// makeDatabase makes and migrates a database on the server that admin names, and returns its DSN
// and how to drop it.
func makeDatabase(ctx context.Context, admin string) (dsn string, drop func() error, err error) {
	name := "waybill_bench_" + strings.ToLower(rand.Text()[:10])
	run := func(ctx context.Context, statement string) error {
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement+" "+pgx.Identifier{name}.Sanitize())
		return err
	}
	dsn, err = onDatabase(admin, name)
	if err != nil {
		return "", nil, err
	}
	if err := run(ctx, "CREATE DATABASE"); err != nil {
		return "", nil, fmt.Errorf("make a database: %w", err)
	}
	drop = func() error {
		// The run's own context may be over by now; its database must go all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return run(ctx, "DROP DATABASE")
	}
	if err := postgres.Migrate(ctx, dsn, postgres.Up); err != nil {
		return "", nil, fmt.Errorf("%w (and dropping it: %v)", err, drop())
	}
	return dsn, drop, nil
}

// onDatabase returns the DSN, a URL or keywords, with another database.
func onDatabase(dsn, name string) (string, error) {
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("the database URL cannot be read") // it may hold a password
	}
	u.Path = "/" + name
	return u.String(), nil
}
