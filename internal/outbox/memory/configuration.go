package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// PutTenant implements outbox.Configuration.
func (s *Store) PutTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant, exists bool) error) (outbox.Tenant, bool, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Tenant{}, false, err
	}
	defer s.mu.Unlock()
	id, exists := s.keys[key]
	t := outbox.NewTenant(key, truncate(now))
	if exists {
		t = *s.tenants[id]
	}
	was := t.State
	if err := edit(&t, exists); err != nil {
		return outbox.Tenant{}, false, err
	}
	if !exists {
		t.ID = outbox.TenantID(len(s.tenants) + 1)
		s.keys[key] = t.ID
	}
	if was != outbox.TenantActive && t.State == outbox.TenantActive {
		t.ResumedAt = s.clock()
	}
	t.UpdatedAt = truncate(now)
	stored := t
	s.tenants[t.ID] = &stored
	s.changed(t.Shard)
	return t, !exists, nil
}

// Tenant implements outbox.Configuration.
func (s *Store) Tenant(ctx context.Context, key string) (outbox.Tenant, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Tenant{}, err
	}
	defer s.mu.Unlock()
	if id, ok := s.keys[key]; ok {
		return *s.tenants[id], nil
	}
	return outbox.Tenant{}, outbox.ErrNotFound
}

// EditTenant implements outbox.Configuration.
func (s *Store) EditTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant) error) (outbox.Tenant, error) {
	t, _, err := s.PutTenant(ctx, key, now, func(t *outbox.Tenant, exists bool) error {
		if !exists {
			return outbox.ErrNotFound
		}
		return edit(t)
	})
	return t, err
}

// endpoint finds a living endpoint of the tenant.
func (s *Store) endpoint(tenant outbox.TenantRef, ref outbox.EndpointRef) *outbox.Endpoint {
	for _, e := range s.endpoints {
		if e.Tenant == tenant && e.DeletedAt.IsZero() && (ref.UID != "" && e.UID == ref.UID || ref.UID == "" && e.ID == ref.ID) {
			return e
		}
	}
	return nil
}

// PutEndpoint implements outbox.Configuration.
func (s *Store) PutEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint, exists bool) error) (outbox.Endpoint, bool, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Endpoint{}, false, err
	}
	defer s.mu.Unlock()
	if t := s.tenants[tenant.ID]; t == nil || !t.DeletedAt.IsZero() {
		return outbox.Endpoint{}, false, outbox.ErrNotFound
	}
	found := s.endpoint(tenant, ref)
	if found == nil && !ref.ID.IsZero() {
		return outbox.Endpoint{}, false, outbox.ErrNotFound
	}
	e := outbox.Endpoint{ID: outbox.NewEndpointID(now), Tenant: tenant}
	if found != nil {
		e = *found
	}
	stored, err := s.storeEndpoint(e, found != nil, now, func(e *outbox.Endpoint) error { return edit(e, found != nil) })
	return stored, found == nil, err
}

// storeEndpoint edits an endpoint and keeps it.
func (s *Store) storeEndpoint(e outbox.Endpoint, exists bool, now time.Time, edit func(e *outbox.Endpoint) error) (outbox.Endpoint, error) {
	was := e.State
	if err := edit(&e); err != nil {
		return outbox.Endpoint{}, err
	}
	if e.UID != "" {
		if other := s.endpoint(e.Tenant, outbox.EndpointRef{UID: e.UID}); other != nil && other.ID != e.ID {
			return outbox.Endpoint{}, outbox.ErrConflict
		}
	}
	if e.Ordering == "" {
		e.Ordering = outbox.OrderingNone
	}
	if e.OnDead == "" {
		e.OnDead = outbox.OnDeadSkip
	}
	switch {
	case !exists:
		e.CreatedAt, e.ResumedAt = truncate(now), truncate(now)
	case was != outbox.EndpointActive && e.State == outbox.EndpointActive:
		e.ResumedAt = s.clock()
	}
	e.UpdatedAt, e.DiscardedAt = truncate(now), truncate(e.DiscardedAt)
	e.EventTypes = slices.Clone(e.EventTypes)
	stored := e
	s.endpoints[e.ID] = &stored
	s.changed(e.Tenant.Shard)
	return e, nil
}

// EditEndpoint implements outbox.Configuration.
func (s *Store) EditEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint) ([]outbox.Command, error)) (outbox.Endpoint, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Endpoint{}, err
	}
	defer s.mu.Unlock()
	found := s.endpoint(tenant, ref)
	if found == nil {
		return outbox.Endpoint{}, outbox.ErrNotFound
	}
	var commands []outbox.Command
	e, err := s.storeEndpoint(*found, true, now, func(e *outbox.Endpoint) (err error) {
		commands, err = edit(e)
		return err
	})
	if err != nil {
		return outbox.Endpoint{}, err
	}
	for _, c := range commands {
		s.append(outbox.OutboxRow{Shard: e.Tenant.Shard, Kind: outbox.OutboxCommand, Tenant: e.Tenant.ID, Endpoint: e.ID, Command: c})
	}
	return e, nil
}

// DeleteEndpoint implements outbox.Configuration.
func (s *Store) DeleteEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, limit int) (int, error) {
	if err := s.locked(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	e := s.endpoint(tenant, ref)
	if e == nil {
		return 0, outbox.ErrNotFound
	}
	e.DeletedAt, e.UpdatedAt, e.Secrets, e.Headers = truncate(now), truncate(now), nil, nil
	s.changed(tenant.Shard)
	s.append(outbox.OutboxRow{
		Shard: tenant.Shard, Kind: outbox.OutboxCommand, Tenant: tenant.ID, Endpoint: e.ID,
		Command: outbox.Command{Name: outbox.CommandCancelEndpoint, Reason: outbox.ReasonEndpointDeleted},
	})
	return min(limit, len(s.of[e.ID])), nil
}

// Endpoint implements outbox.Configuration.
func (s *Store) Endpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef) (outbox.Endpoint, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Endpoint{}, err
	}
	defer s.mu.Unlock()
	if e := s.endpoint(tenant, ref); e != nil {
		return *e, nil
	}
	return outbox.Endpoint{}, outbox.ErrNotFound
}

// Revisions implements outbox.Ownership.
func (s *Store) Revisions(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.revisions(shards), nil
}

func (s *Store) revisions(shards []outbox.Shard) map[outbox.Shard]int64 {
	of := map[outbox.Shard]int64{}
	for _, id := range shards {
		if at := s.shards[id]; at != nil {
			of[id] = at.revision
		}
	}
	return of
}

// LoadConfig implements outbox.Ownership.
func (s *Store) LoadConfig(ctx context.Context, shards []outbox.Shard) (outbox.ShardConfig, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.ShardConfig{}, err
	}
	defer s.mu.Unlock()
	c := outbox.ShardConfig{Revisions: s.revisions(shards)}
	for _, id := range slices.Sorted(maps.Keys(s.tenants)) {
		if t := s.tenants[id]; t.DeletedAt.IsZero() && slices.Contains(shards, t.Shard) {
			c.Tenants = append(c.Tenants, *t)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.endpoints), compareIDs) {
		e := s.endpoints[id]
		if !e.DeletedAt.IsZero() || !slices.Contains(shards, e.Tenant.Shard) {
			continue
		}
		c.Endpoints = append(c.Endpoints, *e)
		if !s.inLine(e) {
			c.Unordered = append(c.Unordered, outbox.EndpointRow{Shard: e.Tenant.Shard, Endpoint: e.ID})
		}
	}
	return c, nil
}

// SetDispatch implements outbox.Switch.
func (s *Store) SetDispatch(ctx context.Context, state outbox.DispatchState) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.dispatch = state
	return nil
}

// DeleteTenant implements outbox.Configuration. Its job is not kept.
func (s *Store) DeleteTenant(ctx context.Context, key, by string, now time.Time) (outbox.Job, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Job{}, err
	}
	defer s.mu.Unlock()
	id, ok := s.keys[key]
	if !ok {
		return outbox.Job{}, outbox.ErrNotFound
	}
	t := s.tenants[id]
	delete(s.keys, key)
	t.DeletedAt = truncate(now)
	pending := 0
	for _, e := range s.endpoints {
		if e.Tenant.ID == id && e.DeletedAt.IsZero() {
			e.DeletedAt = truncate(now)
		}
	}
	for _, d := range s.pending {
		if d.Tenant == id {
			pending++
		}
	}
	s.changed(t.Shard)
	job := outbox.NewDeleteTenantJob(*t, pending, by, now)
	s.append(outbox.OutboxRow{
		Shard: t.Shard, Kind: outbox.OutboxCommand, Tenant: id,
		Command: outbox.Command{Name: outbox.CommandCancelTenant, Reason: job.Reason},
	})
	return job, nil
}
