package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// openStore opens the configured database for serving. A SQLite file is locked first: whoever has
// the lock owns all of its shards at once; there are no other nodes, and no waker.
func openStore(ctx context.Context, cfg config.Config, log *slog.Logger, life *lifecycle) (store outbox.Store, waker *postgres.Waker, err error) {
	path, isFile := cfg.SQLitePath()
	if isFile {
		lock, err := sqlite.Lock(path)
		if err != nil {
			return nil, nil, err
		}
		life.onStop("database lock", stopSoon, func(context.Context) error { return lock.Unlock() })
	}
	// The key before the database: a crash between the two must not leave a database whose
	// secrets nobody can open.
	keys, err := cfg.Keyring()
	if err != nil {
		return nil, nil, err
	}
	if isFile {
		file, err := sqlite.Open(ctx, sqlite.Config{Path: path, Keyring: keys, Log: log})
		if err != nil {
			return nil, nil, err
		}
		life.onStop("database", stopSoon, func(context.Context) error { return file.Close() })
		return file, nil, admitKeys(ctx, cfg, keys, file)
	}
	server, err := postgres.Open(ctx, postgres.Config{
		URL:      cfg.DatabaseURL.Reveal(),
		MaxConns: cfg.DatabaseMaxConns,
		Keyring:  keys,
		Log:      log,
	})
	if err != nil {
		return nil, nil, err
	}
	life.onStop("database", stopSoon, func(context.Context) error { return server.Close() })
	// It serves all the same, as somebody may want it to, but never in silence.
	durability, err := server.Durability(ctx)
	if err != nil {
		return nil, nil, err
	}
	if reason, advice := durability.Weakness(); reason != "" {
		log.ErrorContext(ctx, "accepted events can be lost in a crash", "reason", reason, "advice", advice)
	}
	if err := admitKeys(ctx, cfg, keys, server); err != nil {
		return nil, nil, err
	}
	if waker, err = server.NewWaker(ctx); err != nil {
		return nil, nil, err
	}
	life.onStop("wake-ups", stopSoon, func(context.Context) error { waker.Close(); return nil })
	return server, waker, nil
}

// admitKeys refuses to serve a database that is sealed with other keys. Served with them, every
// delivery would become a dead letter within minutes, though nothing is wrong with its endpoint.
func admitKeys(ctx context.Context, cfg config.Config, keys *keyring.Keyring, store outbox.Configuration) error {
	err := store.AdmitKeys(ctx, keys.Admit)
	switch {
	case errors.Is(err, keyring.ErrWrongKey):
		return &config.Refusal{Reason: cfg.KeySource() + " does not open the secrets in " + cfg.Database() +
			": start with the key that the database was served with before, or, to replace it, name that one in WAYBILL_ENCRYPTION_KEYS_OLD"}
	case errors.Is(err, keyring.ErrMissingKey):
		return &config.Refusal{Reason: "a part of the secrets in " + cfg.Database() +
			" is still sealed with an earlier encryption key: name that one in WAYBILL_ENCRYPTION_KEYS_OLD"}
	case err != nil:
		return fmt.Errorf("encryption keys: %w", err)
	}
	return nil
}
