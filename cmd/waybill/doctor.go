package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/doctor"
)

func (sh *shell) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at the settings, the database, the disk, the clock and the network",
		Long: `Look at everything the server stands on and say what is wrong and what to do about it. Nothing is
changed, and it can run beside a server.

Exit code 0 if nothing is broken (there may be warnings), 1 if something is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sh.config(cmd.Flags())
			if err != nil {
				return err
			}
			findings := doctor.Examine(cmd.Context(), cfg)
			if err := sh.showFindings(findings); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Grade == doctor.Failure {
					return errCheckFailed
				}
			}
			return nil
		},
	}
	serverFlags(cmd.Flags())
	return cmd
}

func (sh *shell) showFindings(findings []doctor.Finding) error {
	if sh.json {
		return sh.printJSON(findings)
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(sh.out, "%-8s %-18s %s\n", f.Grade, f.Subject, printable(f.Detail)); err != nil {
			return err
		}
		if f.Advice != "" {
			if _, err := fmt.Fprintf(sh.out, "%27s %s\n", "→", printable(f.Advice)); err != nil {
				return err
			}
		}
	}
	return nil
}
