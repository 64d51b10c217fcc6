package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

func (sh *shell) verify() *cobra.Command {
	var deep bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove from the database that no event was lost",
		Long: `Prove from one snapshot of the database that the books balance: everything planned is delivered,
pending, dead or cancelled, in every shard. With --deep also that every number of every endpoint
belongs to exactly one delivery. It can run beside a server.

Exit code 0 if everything balances, 1 with the places that do not.`,
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
			report, err := store.Verify(cmd.Context(), deep)
			if err != nil {
				return err
			}
			if err := sh.showReport(report); err != nil {
				return err
			}
			if !report.Balanced() {
				return errCheckFailed
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "follow the numbers of every endpoint too")
	databaseFlags(cmd.Flags())
	return cmd
}

// openBooks opens the database to look at it, without keys and without the right to dispatch.
func openBooks(ctx context.Context, cfg config.Config) (outbox.Store, error) {
	path, isFile := cfg.SQLitePath()
	if !isFile {
		return postgres.Open(ctx, postgres.Config{URL: cfg.DatabaseURL.Reveal(), MaxConns: cfg.DatabaseMaxConns})
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no database to look at: %w", err) // opening it would make one
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}

// books is a report as --json prints it.
type books struct {
	Balanced bool           `json:"balanced"`
	At       time.Time      `json:"at"`
	Totals   map[string]any `json:"totals"`
	Checks   []equation     `json:"checks"`
	Warning  string         `json:"warning,omitempty"`
}

type equation struct {
	Name   string      `json:"name"`
	OK     bool        `json:"ok"`
	Broken []imbalance `json:"broken"`
}

type imbalance struct {
	Where string `json:"where"`
	Left  int64  `json:"left"`
	Right int64  `json:"right"`
}

func (sh *shell) showReport(r outbox.Report) error {
	b := books{Balanced: r.Balanced(), At: r.At.UTC().Truncate(time.Millisecond), Warning: r.Warning, Checks: []equation{}, Totals: map[string]any{
		"events": r.Events, "routed": r.Routed, "matched": r.Matched, "unmatched": r.Unmatched, "waiting": r.Waiting,
		"planned": r.Planned, "replayed": r.Replayed, "delivered": r.Delivered, "pending": r.Pending, "dead": r.Dead, "cancelled": r.Cancelled,
	}}
	for _, check := range r.Checks {
		e := equation{Name: check.Name, OK: len(check.Broken) == 0, Broken: []imbalance{}}
		for _, i := range check.Broken {
			e.Broken = append(e.Broken, imbalance{i.Where, i.Left, i.Right})
		}
		b.Checks = append(b.Checks, e)
	}
	if sh.json {
		return sh.printJSON(b)
	}
	fmt.Fprintf(sh.out, "events %d = routed %d + waiting %d\n", r.Events, r.Routed, r.Waiting)
	fmt.Fprintf(sh.out, "planned %d (of them replays %d) = delivered %d + pending %d + dead %d + cancelled %d\n", r.Planned, r.Replayed, r.Delivered, r.Pending, r.Dead, r.Cancelled)
	for _, e := range b.Checks {
		if e.OK {
			fmt.Fprintf(sh.out, "ok      %s\n", e.Name)
			continue
		}
		fmt.Fprintf(sh.out, "BROKEN  %s\n", e.Name)
		for _, i := range e.Broken {
			fmt.Fprintf(sh.out, "        %s: %d and %d\n", i.Where, i.Left, i.Right)
		}
	}
	if r.Warning != "" {
		fmt.Fprintf(sh.out, "note    %s\n", r.Warning)
	}
	verdict := "The books balance."
	if !b.Balanced {
		verdict = "The books do not balance."
	}
	fmt.Fprintln(sh.out, verdict)
	return nil
}
