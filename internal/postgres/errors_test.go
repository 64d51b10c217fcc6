package postgres

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestClassify_saysWhatTheCallerMayDo(t *testing.T) {
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for what, c := range map[string]struct {
		err  error
		at   phase
		lost bool
		want outbox.Fault
	}{
		"too many rows in a subquery":               {server("21000"), committing, false, outbox.FaultRefused},
		"bytes that are not UTF-8":                  {server("22021"), committing, false, outbox.FaultRefused},
		"a duplicate key":                           {server("23505"), committing, false, outbox.FaultRefused},
		"no partition, a CHECK":                     {server("23514"), working, false, outbox.FaultRefused},
		"serialization failure":                     {server("40001"), committing, false, outbox.FaultRetry},
		"deadlock":                                  {server("40P01"), committing, false, outbox.FaultRetry},
		"the server does not know":                  {server("40003"), committing, false, outbox.FaultUnknown},
		"lock time-out":                             {server("55P03"), committing, false, outbox.FaultLocked},
		"statement time-out":                        {server("57014"), committing, false, outbox.FaultRetry},
		"shutdown while working":                    {server("57P01"), working, true, outbox.FaultRetry},
		"shutdown while committing":                 {server("57P01"), committing, true, outbox.FaultUnknown},
		"crash of another process while committing": {server("57P02"), committing, true, outbox.FaultUnknown},
		"still starting":                            {server("57P03"), working, true, outbox.FaultRetry},
		"a standby":                                 {server("25006"), committing, false, outbox.FaultRetry},
		"idle in transaction for too long":          {server("25P03"), working, true, outbox.FaultRetry},
		"disk full":                                 {server("53100"), committing, false, outbox.FaultRetry},
		"too many connections":                      {server("53300"), working, true, outbox.FaultRetry},
		"input/output error":                        {server("58030"), committing, false, outbox.FaultRetry},
		"connection failure while working":          {server("08006"), working, true, outbox.FaultRetry},
		"connection failure while committing":       {server("08006"), committing, true, outbox.FaultUnknown},
		"no such table":                             {server("42P01"), committing, false, outbox.FaultBroken},
		"a bug of the server":                       {server("XX000"), committing, false, outbox.FaultBroken},
		"connection cut while working":              {io.ErrUnexpectedEOF, working, true, outbox.FaultRetry},
		"connection cut while committing":           {io.ErrUnexpectedEOF, committing, true, outbox.FaultUnknown},
		"caller gave up while committing":           {context.Canceled, committing, true, outbox.FaultUnknown},
		"an argument that cannot be encoded":        {errors.New("cannot encode"), committing, false, outbox.FaultBroken},
	} {
		if got := outbox.FaultOf(writeError(c.err, c.at, c.lost)); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestStorable_keepsAFactFromBeingRefused(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü":  "plain ü",
		"a\x00b":   "a\uFFFDb",
		"a\xffb":   "a\uFFFDb",
		"\x00\xff": "\uFFFD\uFFFD",
	} {
		if got := storable(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
