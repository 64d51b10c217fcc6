package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// Exit codes, as scripts know them.
const (
	exitOK          = 0
	exitFailed      = 1 // a check failed, or something broke
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnreachable = 5
)

// usageError is a command line that cannot be understood.
type usageError struct{ sentence string }

func (e *usageError) Error() string { return e.sentence }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// errCheckFailed ends a command whose output already said what is wrong.
var errCheckFailed = errors.New("the check failed")

// exitCode says what an error means to a script.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.ValueError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Refusal](err); ok {
		return exitRefused
	}
	if answer, ok := errors.AsType[*client.Error](err); ok {
		switch {
		case answer.Status == http.StatusNotFound:
			return exitNotFound
		case answer.Status >= 500:
			return exitUnreachable
		default:
			return exitRefused
		}
	}
	if _, ok := errors.AsType[*client.Unreachable](err); ok {
		return exitUnreachable
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return exitUnreachable
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok && operation.Op == "dial" {
		return exitUnreachable
	}
	switch {
	case errors.Is(err, sqlite.ErrPlace):
		return exitRefused
	case errors.Is(err, outbox.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	case errors.Is(err, sqlite.ErrInUse), errors.Is(err, postgres.ErrSchema), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EADDRINUSE):
		return exitRefused
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitFailed
}
