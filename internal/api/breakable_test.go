package api

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// breakable passes everything on to the real store, except while it is told to fail.
type breakable struct {
	outbox.Store
	*trouble
}

// trouble is what a store has, and those it was lent to.
type trouble struct {
	mu  sync.Mutex
	err error
	// forgetful: answers of idempotent requests are lost, as when the process dies before
	// keeping them and the claim runs out.
	forgetful bool
	// countJob, if set, answers for CountJob.
	countJob func() (int, bool, error)
}

func (b *breakable) Note(ctx context.Context) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.Note(ctx)
}

func (b *breakable) CountJob(ctx context.Context, job outbox.Job, limit int) (int, bool, error) {
	if err := b.failing(); err != nil {
		return 0, false, err
	}
	if b.countJob != nil {
		return b.countJob()
	}
	return b.Store.CountJob(ctx, job, limit)
}

func (b *breakable) Job(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (outbox.Job, error) {
	if err := b.failing(); err != nil {
		return outbox.Job{}, err
	}
	return b.Store.Job(ctx, tenant, types, id)
}

func (b *breakable) InsertTest(ctx context.Context, e outbox.Event, endpoint outbox.EndpointID) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.InsertTest(ctx, e, endpoint)
}

func (b *breakable) Jobs(ctx context.Context, q outbox.JobQuery, page outbox.Page) ([]outbox.Job, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Jobs(ctx, q, page)
}

func (b *breakable) RequestJobCancel(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (outbox.Job, error) {
	if err := b.failing(); err != nil {
		return outbox.Job{}, err
	}
	return b.Store.RequestJobCancel(ctx, tenant, types, id)
}

func (b *breakable) By(author *outbox.Author) outbox.Store {
	return &breakable{b.Store.By(author), b.trouble}
}

func (b *breakable) AuditEntries(ctx context.Context, q outbox.AuditQuery, page outbox.Page) ([]outbox.AuditEntry, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.AuditEntries(ctx, q, page)
}

func (b *trouble) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *trouble) failing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *breakable) EndIdempotent(ctx context.Context, scope outbox.TenantRef, key string, answer []byte) error {
	if b.forgetful {
		return b.Store.DropIdempotent(ctx, scope, key)
	}
	return b.Store.EndIdempotent(ctx, scope, key, answer)
}

func (b *breakable) Ping(ctx context.Context) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.Ping(ctx)
}

func (b *breakable) BeginIdempotent(ctx context.Context, scope outbox.TenantRef, key string, digest [32]byte, now time.Time) (outbox.IdempotencyState, []byte, error) {
	if err := b.failing(); err != nil {
		return 0, nil, err
	}
	return b.Store.BeginIdempotent(ctx, scope, key, digest, now)
}

func (b *breakable) PutTenant(ctx context.Context, key string, now time.Time, edit func(*outbox.Tenant, bool) error) (outbox.Tenant, bool, error) {
	if err := b.failing(); err != nil {
		return outbox.Tenant{}, false, err
	}
	return b.Store.PutTenant(ctx, key, now, edit)
}

func (b *breakable) EditTenant(ctx context.Context, key string, now time.Time, edit func(*outbox.Tenant) error) (outbox.Tenant, error) {
	if err := b.failing(); err != nil {
		return outbox.Tenant{}, err
	}
	return b.Store.EditTenant(ctx, key, now, edit)
}

func (b *breakable) DeleteTenant(ctx context.Context, key, by string, now time.Time) (outbox.Job, error) {
	if err := b.failing(); err != nil {
		return outbox.Job{}, err
	}
	return b.Store.DeleteTenant(ctx, key, by, now)
}

func (b *breakable) Tenant(ctx context.Context, key string) (outbox.Tenant, error) {
	if err := b.failing(); err != nil {
		return outbox.Tenant{}, err
	}
	return b.Store.Tenant(ctx, key)
}

func (b *breakable) Tenants(ctx context.Context, q outbox.TenantQuery, page outbox.Page) ([]outbox.Tenant, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Tenants(ctx, q, page)
}

func (b *breakable) PutEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(*outbox.Endpoint, bool) error) (outbox.Endpoint, bool, error) {
	if err := b.failing(); err != nil {
		return outbox.Endpoint{}, false, err
	}
	return b.Store.PutEndpoint(ctx, tenant, ref, now, edit)
}

func (b *breakable) EditEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(*outbox.Endpoint) ([]outbox.Command, error)) (outbox.Endpoint, error) {
	if err := b.failing(); err != nil {
		return outbox.Endpoint{}, err
	}
	return b.Store.EditEndpoint(ctx, tenant, ref, now, edit)
}

func (b *breakable) DeleteEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, limit int) (int, error) {
	if err := b.failing(); err != nil {
		return 0, err
	}
	return b.Store.DeleteEndpoint(ctx, tenant, ref, now, limit)
}

func (b *breakable) Endpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef) (outbox.Endpoint, error) {
	if err := b.failing(); err != nil {
		return outbox.Endpoint{}, err
	}
	return b.Store.Endpoint(ctx, tenant, ref)
}

func (b *breakable) Endpoints(ctx context.Context, q outbox.EndpointQuery, page outbox.Page) ([]outbox.Endpoint, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Endpoints(ctx, q, page)
}

func (b *breakable) EventsByID(ctx context.Context, id outbox.EventID) ([]outbox.EventView, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.EventsByID(ctx, id)
}

func (b *breakable) Event(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) (outbox.EventView, error) {
	if err := b.failing(); err != nil {
		return outbox.EventView{}, err
	}
	return b.Store.Event(ctx, tenant, id)
}

func (b *breakable) Events(ctx context.Context, q outbox.EventQuery, page outbox.Page) ([]outbox.EventView, outbox.EventID, error) {
	if err := b.failing(); err != nil {
		return nil, outbox.EventID{}, err
	}
	return b.Store.Events(ctx, q, page)
}

func (b *breakable) Payload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) ([]byte, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Payload(ctx, tenant, id)
}

func (b *breakable) Delivery(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryView, error) {
	if err := b.failing(); err != nil {
		return outbox.DeliveryView{}, err
	}
	return b.Store.Delivery(ctx, tenant, id)
}

func (b *breakable) Deliveries(ctx context.Context, q outbox.DeliveryQuery, page outbox.Page) ([]outbox.DeliveryView, outbox.DeliveryID, error) {
	if err := b.failing(); err != nil {
		return nil, outbox.DeliveryID{}, err
	}
	return b.Store.Deliveries(ctx, q, page)
}

func (b *breakable) DeliveryTenant(ctx context.Context, id outbox.DeliveryID) (outbox.TenantRef, error) {
	if err := b.failing(); err != nil {
		return outbox.TenantRef{}, err
	}
	return b.Store.DeliveryTenant(ctx, id)
}

func (b *breakable) Attempts(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID, after int, page outbox.Page) ([]outbox.AttemptView, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Attempts(ctx, tenant, id, after, page)
}

func (b *breakable) Attempt(ctx context.Context, tenant outbox.TenantRef, id outbox.AttemptID) (outbox.AttemptView, error) {
	if err := b.failing(); err != nil {
		return outbox.AttemptView{}, err
	}
	return b.Store.Attempt(ctx, tenant, id)
}

func (b *breakable) RequestReplay(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryState, error) {
	if err := b.failing(); err != nil {
		return "", err
	}
	return b.Store.RequestReplay(ctx, tenant, id)
}

func (b *breakable) PendingOf(ctx context.Context, tenant outbox.TenantRef, id outbox.EndpointID, limit int) (int, time.Time, error) {
	if err := b.failing(); err != nil {
		return 0, time.Time{}, err
	}
	return b.Store.PendingOf(ctx, tenant, id, limit)
}

func (b *breakable) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	if err := b.failing(); err != nil {
		return nil, nil, err
	}
	return b.Store.InsertEvents(ctx, batch)
}

func (b *breakable) Backlogs(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow, limit int) (map[outbox.EndpointID]outbox.Backlog, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Backlogs(ctx, tenant, endpoints, limit)
}

func (b *breakable) Ahead(ctx context.Context, deliveries []outbox.Delivery, limit int) (map[outbox.DeliveryID]int, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Ahead(ctx, deliveries, limit)
}

func (b *breakable) Predecessors(ctx context.Context, parked []outbox.Delivery) (map[outbox.DeliveryID]outbox.Predecessor, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Predecessors(ctx, parked)
}

func (b *breakable) Vitals(ctx context.Context, now time.Time) (outbox.Vitals, error) {
	if err := b.failing(); err != nil {
		return outbox.Vitals{}, err
	}
	return b.Store.Vitals(ctx, now)
}

func (b *breakable) HealthOf(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]outbox.EndpointHealth, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.HealthOf(ctx, tenant, endpoints)
}

func (b *breakable) Dispatch(ctx context.Context) (outbox.DispatchState, error) {
	if err := b.failing(); err != nil {
		return outbox.DispatchState{}, err
	}
	return b.Store.Dispatch(ctx)
}

func (b *breakable) SetDispatch(ctx context.Context, state outbox.DispatchState) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.SetDispatch(ctx, state)
}

func (b *breakable) CreateSession(ctx context.Context, s outbox.Session, code outbox.Digest) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.CreateSession(ctx, s, code)
}

func (b *breakable) Sessions(ctx context.Context, tenant outbox.TenantRef, after outbox.SessionID, page outbox.Page) ([]outbox.Session, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Sessions(ctx, tenant, after, page)
}

func (b *breakable) RevokeSession(ctx context.Context, tenant outbox.TenantRef, id outbox.SessionID, now time.Time) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.RevokeSession(ctx, tenant, id, now)
}

func (b *breakable) RevokeSessions(ctx context.Context, tenant outbox.TenantRef, now time.Time) (int, error) {
	if err := b.failing(); err != nil {
		return 0, err
	}
	return b.Store.RevokeSessions(ctx, tenant, now)
}

func (b *breakable) CreateKey(ctx context.Context, k outbox.Key, digest outbox.Digest) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.CreateKey(ctx, k, digest)
}

func (b *breakable) Keys(ctx context.Context, q outbox.KeyQuery, page outbox.Page) ([]outbox.Key, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Keys(ctx, q, page)
}

func (b *breakable) DeleteKey(ctx context.Context, id outbox.KeyID, now time.Time) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.DeleteKey(ctx, id, now)
}

func (b *breakable) Cluster(ctx context.Context) (outbox.Cluster, error) {
	if err := b.failing(); err != nil {
		return outbox.Cluster{}, err
	}
	return b.Store.Cluster(ctx)
}

func (b *breakable) TrafficOf(ctx context.Context, q outbox.TrafficQuery) ([]outbox.Traffic, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.TrafficOf(ctx, q)
}

func (b *breakable) PutSource(ctx context.Context, name string, now time.Time, edit func(*outbox.Source, bool) error) (outbox.Source, bool, error) {
	if err := b.failing(); err != nil {
		return outbox.Source{}, false, err
	}
	return b.Store.PutSource(ctx, name, now, edit)
}

func (b *breakable) DeleteSource(ctx context.Context, name string, now time.Time) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.DeleteSource(ctx, name, now)
}

func (b *breakable) Source(ctx context.Context, name string) (outbox.Source, error) {
	if err := b.failing(); err != nil {
		return outbox.Source{}, err
	}
	return b.Store.Source(ctx, name)
}

func (b *breakable) Sources(ctx context.Context, after outbox.SourceID, page outbox.Page) ([]outbox.Source, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.Sources(ctx, after, page)
}
