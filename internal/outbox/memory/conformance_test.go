package memory_test

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/memory"
	"github.com/waybill-dev/waybill/internal/outbox/outboxtest"
)

func TestStore_keepsTheContract(t *testing.T) {
	outboxtest.RunDispatching(t, func(t *testing.T) outbox.Store { return memory.New(nil) },
		"dead letters that hold others are not purged") // nothing is purged
}
