package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/bench"
)

func (sh *shell) bench() *cobra.Command {
	var scenarios []string
	var database string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine, as ratios to its raw limit",
		Long: `Measure this machine. Every figure is a ratio to R0 of the same run: signed POSTs a second to the
same sink, storing nothing. A database of its own is made on the PostgreSQL server of
--database-url and dropped again; without one a SQLite file is used.`,
		Example: `  waybill bench --scenario throughput-batch,paced --duration 8s --json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if database == "" {
				database = sh.env("WAYBILL_DATABASE_URL")
			}
			if strings.HasPrefix(database, "sqlite://") {
				database = "" // never somebody's file: the run makes one of its own
			}
			for _, name := range scenarios {
				if bench.Names()[name] == "" {
					return usagef("there is no scenario %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(bench.Names())), ", "))
				}
			}
			if duration < time.Second || duration > time.Hour {
				return usagef("--duration must be from 1s to 1h")
			}
			return bench.Run(cmd.Context(), bench.Options{
				Scenarios:   scenarios,
				DatabaseURL: database,
				Duration:    duration,
				JSON:        sh.json,
				Out:         sh.out,
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&scenarios, "scenario", nil, "scenarios to run, separated by commas (default: all)")
	flags.StringVar(&database, "database-url", "", "PostgreSQL server to run on (default: WAYBILL_DATABASE_URL, else a SQLite file)")
	flags.DurationVar(&duration, "duration", 8*time.Second, "how long each scenario runs")
	return cmd
}

// benchProcesses are the commands a bench run starts for its sink and its publisher.
func (sh *shell) benchProcesses() []*cobra.Command { return bench.Commands() }
