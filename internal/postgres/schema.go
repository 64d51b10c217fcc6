package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// CheckSchema reports whether the database has every migration this program was built with. Its
// answers wrap ErrSchema and say what to do. A newer database passes: during a deploy the old
// version still runs on the migrated schema.
func (s *Store) CheckSchema(ctx context.Context) error {
	newest, err := newestVersion()
	if err != nil {
		return err
	}
	var version int64
	err = s.pool.QueryRow(ctx, `
		SELECT coalesce(max(version_id), 0)
		FROM `+versionTable+`
		WHERE is_applied`).Scan(&version)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "42P01" || pgErr.Code == "3F000") {
		return fmt.Errorf("%w: this database has not been set up; run waybill migrate up", ErrSchema)
	}
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	if version < newest {
		return fmt.Errorf("%w: it is at version %d and this program needs %d; run waybill migrate up", ErrSchema, version, newest)
	}
	return nil
}
