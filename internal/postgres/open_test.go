package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func TestOpen_saysWhatToDo(t *testing.T) {
	address, err := url.Parse(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/nowhere"
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: address.String()}); err == nil || !strings.Contains(err.Error(), "that server has no such database; make it (createdb) and run waybill migrate up") {
		t.Errorf("a database that is not there: %v", err)
	}
	address.User = url.UserPassword("nobody-here", "hunter2")
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: address.String()}); err == nil || !strings.Contains(err.Error(), "does not let this user in") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a user that is not there: %v", err)
	}
}
