// Package replay counts what a replay or a cancellation of many deliveries would be about, before
// anything is written. The work itself is the shard's owner's (internal/dispatch).
package replay

import (
	"context"
	"errors"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// ErrTooMany: more rows would have to be looked through than one job may.
var ErrTooMany = errors.New("too much to look through")

// missingPage is how many events are looked at in one go.
const missingPage = 1000

// Store is what counting needs of the database.
type Store interface {
	CountJob(ctx context.Context, job outbox.Job, limit int) (matched int, capped bool, err error)
	CountGone(ctx context.Context, job outbox.Job, limit int) (gone int, err error)
	MissingEvents(ctx context.Context, job outbox.Job, limit int) (outbox.MissingPage, error)
	MissingStore
	Endpoints(ctx context.Context, q outbox.EndpointQuery, page outbox.Page) ([]outbox.Endpoint, error)
}

// Count returns how many deliveries a job that is asked for now is about, ErrTooMany where there
// is more to look through than a job may.
func Count(ctx context.Context, store Store, job *outbox.Job) (int, error) {
	if job.Filter.State == outbox.ReplayMissing {
		return countMissing(ctx, store, *job)
	}
	matched, capped, err := store.CountJob(ctx, *job, outbox.MaxJobRows)
	if err == nil && capped {
		err = ErrTooMany
	}
	return matched, err
}

// maxGone is among how many deliveries those are counted that a replay would skip.
const maxGone = 10_000

// Gone returns how many of the deliveries a replay is about it would skip, their payload or their
// endpoint being gone: of the first ten thousand it looks through, since each has to be looked at.
func Gone(ctx context.Context, store Store, job *outbox.Job) (int, error) {
	if job.Type != outbox.JobReplay || job.Filter.State == outbox.ReplayMissing {
		return 0, nil
	}
	return store.CountGone(ctx, *job, maxGone)
}

// countMissing goes through the events as the job will.
func countMissing(ctx context.Context, store Store, job outbox.Job) (int, error) {
	subscribers, err := subscribersOf(ctx, store, job.Tenant)
	if err != nil {
		return 0, err
	}
	if of := job.Filter.Endpoint; !of.IsZero() {
		subscribers = slices.DeleteFunc(subscribers, func(s route.Subscriber) bool { return s.ID != of })
	}
	missing, asked := 0, 0
	for len(subscribers) > 0 {
		page, err := store.MissingEvents(ctx, job, missingPage)
		if err != nil {
			return 0, err
		}
		if asked += len(page.Events) * len(subscribers); asked > outbox.MaxMissingEvents {
			return 0, ErrTooMany
		}
		found, err := Missing(ctx, store, &job, page, subscribers, job.CreatedAt)
		if err != nil {
			return 0, err
		}
		missing += len(found)
		if page.Last {
			break
		}
		job.Cursor = page.Cursor
	}
	return missing, nil
}

// subscribersOf reads a tenant's endpoints as a router would.
func subscribersOf(ctx context.Context, store Store, tenant outbox.TenantRef) (route.Subscribers, error) {
	var all []*outbox.Endpoint
	query := outbox.EndpointQuery{Tenant: tenant}
	for {
		page, err := store.Endpoints(ctx, query, outbox.Page{Limit: 250, Ascending: true})
		if err != nil {
			return nil, err
		}
		for i := range page {
			all = append(all, &page[i])
		}
		if len(page) < 250 {
			return route.NewSubscribers(all), nil
		}
		query.After = page[len(page)-1].ID
	}
}
