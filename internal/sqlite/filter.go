package sqlite

import (
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// filter is a WHERE clause put together from what a caller asks for; values stay arguments.
type filter struct {
	terms []string
	args  []any
}

func (f filter) and(term string, args ...any) filter {
	f.terms = append(f.terms, term)
	f.args = append(f.args, args...)
	return f
}

func (f filter) andIf(wanted bool, term string, args ...any) filter {
	if !wanted {
		return f
	}
	return f.and(term, args...)
}

func (f filter) sql() (string, []any) {
	if len(f.terms) == 0 {
		return "true", nil
	}
	return strings.Join(f.terms, " AND "), f.args
}

func direction(page outbox.Page) string {
	if page.Ascending {
		return "ASC"
	}
	return "DESC"
}
