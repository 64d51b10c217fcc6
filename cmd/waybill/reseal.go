package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// resealRows is how many rows one transaction seals again: few enough that nobody who edits one of
// them waits.
const resealRows = 100

func (sh *shell) reseal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reseal",
		Short: "Bring everything that is sealed under the current encryption key",
		Long: `Seal again, with the key in WAYBILL_ENCRYPTION_KEY, what the keys in WAYBILL_ENCRYPTION_KEYS_OLD
sealed, so that these can be dropped. It works in small steps beside running servers, which need
both keys meanwhile, and may be interrupted and run again.

Exit code 1 if there is something that none of the keys opens.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err != nil {
				return err
			}
			keys, err := cfg.Keyring()
			if err != nil {
				return err
			}
			store, err := openSealed(cmd.Context(), cfg, keys)
			if err != nil {
				return err
			}
			defer store.Close()
			// As a server does: it leaves the mark of the new key, by which the next start knows it.
			if err := store.AdmitKeys(cmd.Context(), keys.Admit); err != nil {
				if errors.Is(err, keyring.ErrWrongKey) || errors.Is(err, keyring.ErrMissingKey) {
					err = &config.Refusal{Reason: err.Error() + ": name it in WAYBILL_ENCRYPTION_KEYS_OLD"}
				}
				return err
			}
			return sh.resealAll(cmd.Context(), store)
		},
	}
	databaseFlags(cmd.Flags(), "encryption-key-file", "encryption-keys-old-file")
	return cmd
}

// resealAll goes through everything, and notes on record that it did.
func (sh *shell) resealAll(ctx context.Context, store outbox.Store) error {
	values, broken := 0, 0
	for at := (outbox.ResealAt{}); at.Part != outbox.ResealDone; {
		done, err := store.Reseal(ctx, at, resealRows)
		if err != nil {
			return err
		}
		values, broken, at = values+done.Values, broken+done.Broken, done.Next
	}
	by := &outbox.Author{Entry: outbox.AuditEntry{
		ID: outbox.NewAuditID(time.Now()), Action: "secrets.reseal",
		Actor:   outbox.Actor{Kind: outbox.ActorCLI, Name: cmp.Or(sh.env("USER"), "waybill reseal")},
		Changes: outbox.Changes{"values": {To: values}, "broken": {To: broken}},
	}}
	if err := store.By(by).Note(ctx); err != nil {
		return err
	}
	switch {
	case sh.json:
		if err := sh.printJSON(map[string]int{"resealed": values, "unopened": broken}); err != nil {
			return err
		}
	case broken > 0:
		fmt.Fprintf(sh.out, "%d values are sealed with the current key now; %d open with none of the keys and were left as they are\n", values, broken)
	default:
		fmt.Fprintf(sh.out, "%d values were sealed again; WAYBILL_ENCRYPTION_KEYS_OLD is no longer needed\n", values)
	}
	if broken > 0 {
		return errCheckFailed
	}
	return nil
}

// openSealed opens a database that is there, with the keys to what is sealed in it.
func openSealed(ctx context.Context, cfg config.Config, keys *keyring.Keyring) (outbox.Store, error) {
	path, isFile := cfg.SQLitePath()
	if !isFile {
		return postgres.Open(ctx, postgres.Config{URL: cfg.DatabaseURL.Reveal(), MaxConns: cfg.DatabaseMaxConns, Keyring: keys})
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no database to look at: %w", err) // opening it would make one
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path, Keyring: keys})
}
