package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// tenantCache spares publishing a look-up for every request. What it holds is at most a second
// old: so long another node's change or deletion of a tenant can go unnoticed here. Unknown
// tenants are not remembered.
type tenantCache struct {
	store Store

	mu    sync.RWMutex
	byKey map[string]cachedTenant
	byID  map[outbox.TenantID]cachedTenant
	edits int // counts forget, so that a read begun before one is not kept after it
	loads singleflight.Group
}

type cachedTenant struct {
	tenant outbox.Tenant
	at     time.Time
}

const (
	tenantCacheAge  = time.Second
	tenantCacheSize = 20_000
)

func newTenantCache(store Store) *tenantCache {
	return &tenantCache{store: store, byKey: map[string]cachedTenant{}, byID: map[outbox.TenantID]cachedTenant{}}
}

// get finds a tenant by its key.
func (c *tenantCache) get(ctx context.Context, key string) (outbox.Tenant, error) {
	c.mu.RLock()
	entry, found := c.byKey[key]
	c.mu.RUnlock()
	if found && time.Since(entry.at) < tenantCacheAge {
		return entry.tenant, nil
	}
	return c.load(ctx, "key "+key, func(ctx context.Context) (outbox.Tenant, error) { return c.store.Tenant(ctx, key) })
}

// getByID finds a living tenant by its surrogate id.
func (c *tenantCache) getByID(ctx context.Context, id outbox.TenantID) (outbox.Tenant, error) {
	c.mu.RLock()
	entry, found := c.byID[id]
	c.mu.RUnlock()
	if found && time.Since(entry.at) < tenantCacheAge {
		return entry.tenant, nil
	}
	return c.load(ctx, "id "+strconv.FormatInt(int64(id), 10), func(ctx context.Context) (outbox.Tenant, error) {
		next, err := c.store.Tenants(ctx, outbox.TenantQuery{After: id - 1}, outbox.Page{Limit: 1, Ascending: true})
		if err == nil && (len(next) == 0 || next[0].ID != id) {
			err = outbox.ErrNotFound
		}
		if err != nil {
			return outbox.Tenant{}, err
		}
		return next[0], nil
	})
}

// load reads a tenant once for all who ask at the moment. The read belongs to no single one of
// them, so it outlives the first one's patience.
func (c *tenantCache) load(ctx context.Context, what string, read func(context.Context) (outbox.Tenant, error)) (outbox.Tenant, error) {
	began := time.Now()
	c.mu.RLock()
	edits := c.edits
	c.mu.RUnlock()
	loaded := c.loads.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		t, err := read(ctx)
		if err == nil {
			c.put(t, began, edits)
		}
		return t, err
	})
	select {
	case result := <-loaded:
		if result.Err != nil {
			return outbox.Tenant{}, result.Err
		}
		return result.Val.(outbox.Tenant), nil
	case <-ctx.Done():
		return outbox.Tenant{}, ctx.Err()
	}
}

func (c *tenantCache) put(t outbox.Tenant, at time.Time, edits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edits != edits {
		return
	}
	if len(c.byKey) >= tenantCacheSize {
		clear(c.byKey) // a second's worth of look-ups; cheaper than keeping an order
		clear(c.byID)
	}
	c.byKey[t.Key] = cachedTenant{t, at}
	c.byID[t.ID] = cachedTenant{t, at}
}

// forget drops a tenant that this process has changed.
func (c *tenantCache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits++
	if entry, found := c.byKey[key]; found {
		delete(c.byID, entry.tenant.ID)
		delete(c.byKey, key)
	}
	c.loads.Forget("key " + key)
}
