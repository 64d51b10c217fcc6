package contract

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
