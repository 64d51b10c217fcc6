package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/dev"
)

func (sh *shell) dev() *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try everything on this machine: server, demo tenant and receiver in one process",
		Long: `Try everything on this machine: a server on a SQLite file, a tenant with an endpoint, and the
receiver behind it, in one process. What is delivered appears as it arrives. Loopback addresses
are open to deliveries, so that your own programs can receive too.

Ctrl-C stops it. What stays are the database and its key file; start again to go on with them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err != nil {
				return err
			}
			log := slog.New(quiet{sh.logger(cfg.Log, cfg.LogLevel).Handler()})
			if verbose {
				log = sh.logger(cfg.Log, cfg.LogLevel)
			}
			return dev.Run(cmd.Context(), dev.Options{Config: cfg, Out: sh.out, Log: log})
		},
	}
	serverFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the server's log too")
	return cmd
}
