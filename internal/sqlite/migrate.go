package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationTable remembers which migrations have run.
const migrationTable = "waybill_migration"

func migrationFiles() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the name is a constant and the files are embedded
	}
	return files
}

// migrate brings the tables up to date. Two processes may open a new file at once: the one that
// comes second fails inside its migration, undone as a whole, and finds the work done when it
// looks again.
func migrate(ctx context.Context, db *sql.DB) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrationFiles(), goose.WithTableName(migrationTable))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	for try := 0; ; try++ {
		if _, err = provider.Up(ctx); err == nil {
			return nil
		}
		if try == 5 || ctx.Err() != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
}
