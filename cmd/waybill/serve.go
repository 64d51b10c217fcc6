package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/app"
)

func (sh *shell) serve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server: API, routing and dispatch.

Settings come from flags, which beat the environment (--max-payload is WAYBILL_MAX_PAYLOAD), which
beats the YAML file named by --config (max_payload). SIGTERM or Ctrl-C stops taking work, finishes what is in flight and exits 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err != nil {
				return err
			}
			if err := cfg.CheckServe(); err != nil {
				return err
			}
			tuneCollector()
			log := sh.logger(cfg.Log, cfg.LogLevel)
			for _, warning := range cfg.Warnings {
				log.WarnContext(cmd.Context(), "configuration", "warning", warning)
			}
			server, err := app.New(cmd.Context(), cfg, log)
			if err != nil {
				return err
			}
			fmt.Fprintf(sh.out, "listening on http://%s\n", server.Addr())
			if admin := server.AdminAddr(); admin != "" {
				fmt.Fprintf(sh.out, "metrics, health and the dashboard on http://%s\n", admin)
			}
			return server.Run(cmd.Context())
		},
	}
	serverFlags(cmd.Flags())
	return cmd
}
