package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
)

// session is a connection with the statements it has prepared. It is used by one goroutine at a
// time. Statements run to their end whoever waits for them: each is short, and a context with a
// way to end it would cost a goroutine a statement.
type session struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// failed is the first error since it was last cleared; nothing runs after one. SQLite may
	// have ended the transaction with it, and a later statement would then commit by itself.
	failed error
}

func newSession(conn *sql.Conn) *session {
	return &session{conn: conn, stmts: map[string]*sql.Stmt{}}
}

// stmt returns the prepared statement for a query, which must be one of the package's constants:
// the cache is never emptied.
func (s *session) stmt(query string) (*sql.Stmt, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	if stmt := s.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(context.Background(), query)
	if err != nil {
		s.failed = err
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// exec runs a statement and returns how many rows it wrote.
func (s *session) exec(query string, args ...any) (int64, error) {
	result, err := s.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// insert runs the insertion of a row and returns its rowid.
func (s *session) insert(query string, args ...any) (int64, error) {
	result, err := s.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (s *session) run(query string, args []any) (sql.Result, error) {
	stmt, err := s.stmt(query)
	if err != nil {
		return nil, err
	}
	result, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		s.failed = err
		return nil, err
	}
	return result, nil
}

// get reads one row into dest; sql.ErrNoRows if there is none.
func (s *session) get(query string, args []any, dest ...any) error {
	found := false
	err := s.each(query, args, func(scan scan) error {
		if found {
			return nil
		}
		found = true
		return scan(dest...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

// scan reads the columns of a row.
type scan func(dest ...any) error

// errStop ends each without an error.
var errStop = errors.New("stop")

// each calls fn for every row, until it returns an error or errStop.
func (s *session) each(query string, args []any, fn func(scan) error) error {
	stmt, err := s.stmt(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		s.failed = err
		return err
	}
	return s.drain(rows, fn)
}

// eachOnce is each for a query put together from a caller's filters: it is not kept prepared,
// and ends with the context.
func (s *session) eachOnce(ctx context.Context, query string, args []any, fn func(scan) error) error {
	if s.failed != nil {
		return s.failed
	}
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		s.failed = err
		return err
	}
	return s.drain(rows, fn)
}

func (s *session) drain(rows *sql.Rows, fn func(scan) error) (err error) {
	defer func() {
		if end := rows.Close(); err == nil && end != nil {
			s.failed, err = end, end
		}
	}()
	for rows.Next() {
		if err := fn(rows.Scan); err == errStop { //nolint:errorlint // our own, never wrapped
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		s.failed = err
		return err
	}
	return nil
}

func (s *session) close() {
	for _, stmt := range s.stmts {
		_ = stmt.Close()
	}
	_ = s.conn.Close()
}

// discard closes the connection itself instead of giving it back: it may be in any state.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = s.conn.Close()
}
