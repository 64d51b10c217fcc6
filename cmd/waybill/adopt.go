package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func (sh *shell) adopt() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Let servers of this environment send from a database of another",
		Long: `Give the database the environment in WAYBILL_ENVIRONMENT. A copy of a database belongs to the
environment it was copied from, and servers of another one send nothing from it: the original
does. Adopt a copy once it is to go on by itself. Servers that run begin to send within seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err != nil {
				return err
			}
			store, err := openBooks(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer store.Close()
			by := &outbox.Author{Entry: outbox.AuditEntry{
				ID: outbox.NewAuditID(time.Now()), Action: "environment.adopt",
				Actor:   outbox.Actor{Kind: outbox.ActorCLI, Name: cmp.Or(sh.env("USER"), "waybill adopt")},
				Changes: outbox.Changes{},
			}}
			former, err := store.By(by).AdoptEnvironment(cmd.Context(), cfg.Environment)
			if err != nil {
				return err
			}
			state, err := store.Dispatch(cmd.Context())
			if err != nil {
				return err
			}
			if sh.json {
				return sh.printJSON(map[string]any{"environment": cfg.Environment, "former": former, "paused": state.Paused})
			}
			switch {
			case former == cfg.Environment:
				fmt.Fprintf(sh.out, "the database belongs to %s already\n", former)
			default:
				fmt.Fprintf(sh.out, "the database belongs to %s now (formerly %s); its servers begin to send within seconds\n", cfg.Environment, cmp.Or(former, "nobody"))
			}
			if state.Paused {
				fmt.Fprintf(sh.out, "sending was stopped by %s all the same (%s); waybill resume starts it\n", state.By, state.Reason)
			}
			return nil
		},
	}
	databaseFlags(cmd.Flags(), "environment")
	return cmd
}
