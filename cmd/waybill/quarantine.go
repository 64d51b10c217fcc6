package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/quarantine"
)

// quarantine is the process in which the server handles what may have killed it.
func (sh *shell) quarantine() *cobra.Command {
	return &cobra.Command{
		Use:    quarantine.Command,
		Short:  "Handle one delivery apart (started by the server)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return quarantine.Serve(cmd.Context(), sh.in, sh.out)
		},
	}
}
