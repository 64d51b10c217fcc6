package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/sqlstub"
)

func (sh *shell) sql() *cobra.Command {
	return group("sql", "SQL for your own database",
		&cobra.Command{
			Use:   "stub",
			Short: "Print a small schema for an application's test database",
			Long: `Print a small schema for an application's test database: waybill.publish with its checks, and
waybill.published to assert on. Nothing is delivered, and no Waybill is needed.`,
			Example: `  waybill sql stub | psql "$TEST_DATABASE_URL"`,
			Args:    cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprint(sh.out, sqlstub.SQL)
				return err
			},
		})
}
