package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/config"
)

func (sh *shell) configuration() *cobra.Command {
	check := &cobra.Command{
		Use:   "check",
		Short: "Say whether serve would start with these settings",
		Long: `Read the settings as serve would, from the same flags, environment and file, and say in one
sentence what keeps it from starting. Nothing is opened.

Exit code 0 if it would start, 2 with the setting that cannot be used, 4 with what is refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err == nil {
				err = cfg.CheckServe()
			}
			if err != nil {
				return err
			}
			for _, warning := range cfg.Warnings {
				fmt.Fprintf(sh.err, "waybill: %s\n", warning)
			}
			fmt.Fprintln(sh.out, "The settings can be used.")
			return nil
		},
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print every setting, its value and where it comes from; secrets are hidden",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := config.Explain(sh.sources(cmd.Flags()))
			if err != nil {
				return err
			}
			if sh.json {
				return sh.printJSON(values)
			}
			rows := make([][]string, len(values))
			for i, v := range values {
				rows[i] = []string{v.Key, v.Value, v.From}
			}
			return sh.table([]string{"SETTING", "VALUE", "FROM"}, rows)
		},
	}
	for _, cmd := range []*cobra.Command{check, show} {
		serverFlags(cmd.Flags())
	}
	return group("config", "Look at the settings", check, show)
}
