package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultPublisherRole may publish by SQL and do nothing else.
const DefaultPublisherRole = "waybill_publisher"

// publisherFunctions are the functions a publisher may call.
var publisherFunctions = []string{
	"waybill.publish(text, text, text, text, text, text, jsonb)",
	"waybill.publish(text, text, json, text, text, text, jsonb)",
	"waybill.publish(text, text, jsonb, text, text, text, jsonb)",
	"waybill.publish(text, text, bytea, text, text, text, jsonb)",
	"waybill.ensure_tenant(text, text)",
}

// PublisherGrants returns the statements that let a role publish, for people who keep roles
// themselves.
func PublisherGrants(role string) string {
	to := pgx.Identifier{role}.Sanitize()
	var b strings.Builder
	fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA waybill TO %s;\n", to)
	for _, f := range publisherFunctions {
		fmt.Fprintf(&b, "GRANT EXECUTE ON FUNCTION %s TO %s;\n", f, to)
	}
	return b.String()
}

// MakePublisherRole makes the role, which cannot log in itself, unless it exists, and lets it
// publish. Applications' roles become its members.
func MakePublisherRole(ctx context.Context, dsn, role string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("database URL: %w", hidePassword(err))
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		_, err := conn.Exec(ctx, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" NOLOGIN")
		// Roles belong to the whole server: another database's migration may have made it just now.
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); err != nil && !(ok && (pgErr.Code == "42710" || pgErr.Code == "23505")) {
			return fmt.Errorf("make role %s: %w", role, err)
		}
	}
	if _, err := conn.Exec(ctx, PublisherGrants(role), pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("let %s publish: %w", role, err)
	}
	return nil
}
