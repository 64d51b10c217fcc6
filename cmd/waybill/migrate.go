package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/postgres"
)

// selfMigrating is what migrate says about a SQLite file.
const selfMigrating = "a SQLite database is brought up to date whenever it is opened; there is nothing to do"

func (sh *shell) migrate() *cobra.Command {
	cmd := group("migrate", "Change the schema of a PostgreSQL database",
		sh.migrateUp(), sh.migrateDown(), sh.migrateStatus(), sh.migrateSQL())
	cmd.Long = `Change the schema of a PostgreSQL database, as the role in WAYBILL_MIGRATE_DATABASE_URL, else
WAYBILL_DATABASE_URL. Run it before the new version starts. SQLite files migrate themselves.`
	return cmd
}

func (sh *shell) migrateUp() *cobra.Command {
	var role string
	var noRole bool
	cmd := &cobra.Command{
		Use: "up", Short: "Bring the schema up to date, and let a role publish", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if noRole && cmd.Flags().Changed("publisher-role") {
				return usagef("--publisher-role and --no-role exclude each other")
			}
			dsn, err := sh.migrateURL(cmd)
			if err != nil || dsn == "" {
				return err
			}
			if err := postgres.Migrate(cmd.Context(), dsn, postgres.Up); err != nil {
				return err
			}
			if noRole {
				return sh.showGrants(role)
			}
			if err := postgres.MakePublisherRole(cmd.Context(), dsn, role); err != nil {
				return err
			}
			return sh.showMigrations(cmd.Context(), dsn)
		},
	}
	cmd.Flags().StringVar(&role, "publisher-role", postgres.DefaultPublisherRole, "role that may publish by SQL; made if missing")
	cmd.Flags().BoolVar(&noRole, "no-role", false, "make no role; print the GRANTs for one instead")
	databaseFlags(cmd.Flags())
	return cmd
}

func (sh *shell) migrateDown() *cobra.Command {
	cmd := &cobra.Command{
		Use: "down", Short: "Take the newest migration back", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := sh.migrateURL(cmd)
			if err != nil || dsn == "" {
				return err
			}
			if err := postgres.Migrate(cmd.Context(), dsn, postgres.Down); err != nil {
				return err
			}
			return sh.showMigrations(cmd.Context(), dsn)
		},
	}
	databaseFlags(cmd.Flags())
	return cmd
}

func (sh *shell) migrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "List the migrations; exit code 1 if one is missing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := sh.migrateURL(cmd)
			if err != nil || dsn == "" {
				return err
			}
			if err := sh.showMigrations(cmd.Context(), dsn); err != nil {
				return err
			}
			all, err := postgres.MigrationStatus(cmd.Context(), dsn)
			if err != nil {
				return err
			}
			for _, m := range all {
				if m.AppliedAt.IsZero() {
					return errCheckFailed
				}
			}
			return nil
		},
	}
	databaseFlags(cmd.Flags())
	return cmd
}

func (sh *shell) migrateSQL() *cobra.Command {
	return &cobra.Command{
		Use: "sql", Short: "Print everything up would run on an empty database", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := postgres.MigrationSQL()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(sh.out, text)
			return err
		},
	}
}

// migrateURL returns the database to migrate, "" where there is nothing to do.
func (sh *shell) migrateURL(cmd *cobra.Command) (string, error) {
	cfg, err := sh.config(cmd.Flags())
	if err != nil {
		return "", err
	}
	if _, isFile := cfg.SQLitePath(); isFile {
		if cmd.Name() == "down" {
			return "", &config.Refusal{Reason: "a SQLite database follows the version that opens it and is not taken back"}
		}
		fmt.Fprintln(sh.err, selfMigrating)
		return "", nil
	}
	return cfg.MigrateDatabaseURL.Reveal(), nil
}

// showGrants prints what a role needs, alone, so that it can be piped into psql.
func (sh *shell) showGrants(role string) error {
	grants := postgres.PublisherGrants(role)
	if sh.json {
		return sh.printJSON(map[string]string{"grants": grants})
	}
	_, err := fmt.Fprint(sh.out, grants)
	return err
}

// migration is one line of status as --json prints it.
type migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"`
}

func (sh *shell) showMigrations(ctx context.Context, dsn string) error {
	all, err := postgres.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	shown := []migration{}
	rows := [][]string{}
	for _, m := range all {
		line := migration{Version: m.Version, Name: m.Name}
		applied := "missing"
		if !m.AppliedAt.IsZero() {
			line.AppliedAt = new(m.AppliedAt.UTC().Truncate(time.Millisecond))
			applied = local(m.AppliedAt)
		}
		shown = append(shown, line)
		rows = append(rows, []string{strconv.FormatInt(m.Version, 10), m.Name, applied})
	}
	if sh.json {
		return sh.printJSON(map[string]any{"data": shown})
	}
	return sh.table([]string{"VERSION", "NAME", "APPLIED"}, rows)
}
