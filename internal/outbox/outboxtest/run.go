package outboxtest

import (
	"context"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Open returns an empty, migrated store. It closes the store when the test ends.
type Open func(t *testing.T) outbox.Store

// Backdoor is what a store given to Run may offer besides, so that the suite can look at, and
// damage, what is stored. Promises that need it are skipped where a store does not have it.
type Backdoor interface {
	// Exec runs one statement outside the store, and Count one query for a number. In both
	// {name} stands for a table, for example {delivery}, {garbage} for a literal of sealed secrets
	// that do not open, {nothing} for one of no event types and {odd} for one of event types of
	// which only the first can be read.
	Exec(ctx context.Context, statement string) error
	Count(ctx context.Context, query string) (int, error)
	// Dump returns every byte the database holds about configuration and idempotency, in
	// whatever form; the suite searches it for secrets.
	Dump(ctx context.Context) ([]byte, error)
}

// promise is one sentence of the contract and the test that holds a store to it.
type promise struct {
	sentence string
	test     func(w *world)
}

// topic is a part of the contract.
type topic struct {
	name     string
	promises []promise
}

var contract = []topic{
	publishing,
	publishingKeys,
	publishingBytes,
	idempotency,
	tenants,
	tenantLists,
	endpoints,
	endpointNames,
	endpointLists,
	concurrentEdits,
	secrets,
	sources,
	inbound,
	encryptionKeys,
	sessions,
	apiKeys,
	auditing,
	environments,
	ownership,
	handover,
	routing,
	fences,
	numbering,
	fanOut,
	fetching,
	finishing,
	careful,
	lateResults,
	answers,
	replaying,
	cancelling,
	replayJobs,
	replayJobsStopped,
	missingJobs,
	cancellationJobs,
	erasures,
	jobIsolation,
	expiring,
	events,
	deliveries,
	deliveryFilters,
	longLists,
	attempts,
	isolation,
	health,
	limits,
	waiting,
	upkeep,
	monitoring,
	retention,
	corruption,
	largeCalls,
	crowds,
	histories,
	figures,
	looking,
	order,
	orderSwitched,
	orderHistories,
	strangers,
	erasing,
}

// dispatching is the part of the contract that internal/dispatch rests on, but for jobs.
var dispatching = []topic{
	ownership,
	handover,
	routing,
	fences,
	numbering,
	fanOut,
	fetching,
	finishing,
	careful,
	lateResults,
	replaying,
	cancelling,
	expiring,
	health,
	histories,
	order,
	orderSwitched,
	orderHistories,
}

// RunDispatching proves that the stores which open returns keep the part of the contract that
// dispatching rests on. except names promises of it, by their sentences, that need something else.
func RunDispatching(t *testing.T, open func(t *testing.T) outbox.Store, except ...string) {
	runTopics(t, dispatching, open, except)
}

// Run proves that the stores which open returns keep the contract.
func Run(t *testing.T, open func(t *testing.T) outbox.Store) {
	runTopics(t, contract, open, nil)
}

func runTopics(t *testing.T, topics []topic, open func(t *testing.T) outbox.Store, except []string) {
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, p := range topic.promises {
				if slices.Contains(except, p.sentence) {
					continue
				}
				t.Run(p.sentence, func(t *testing.T) {
					t.Parallel()
					p.test(newWorld(t, open(t)))
				})
			}
		})
	}
}

// large skips a test that needs many rows under -short.
func large(w *world) {
	w.Helper()
	if testing.Short() {
		w.Skip("many rows")
	}
}
