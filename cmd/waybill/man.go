package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/waybill-dev/waybill/internal/version"
)

func (sh *shell) man() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // a page that names the day it was made is never the same twice
			return doc.GenManTree(root, &doc.GenManHeader{Title: "WAYBILL", Section: "1", Source: "Waybill " + version.String(), Manual: "Waybill"}, args[0])
		},
	}
}
