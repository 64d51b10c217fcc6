package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const endpointColumns = `e.id, e.shard, e.tenant, e.uid, e.url, e.description, e.metadata, e.event_types, e.headers, e.secrets,
	e.max_in_flight, e.rate_count, e.rate_per, e.timeout, e.ordering, e.on_dead, e.state, e.state_reason, e.retry, e.created_at, e.updated_at, e.resumed_at, e.discarded_at, e.deleted_at,
	e.credentials, e.signing, e.filter, e.payload_mode, e.thin_ttl`

// scanEndpoint reads an endpoint. What cannot be understood in it becomes its Fault: one broken
// row must not stop the others from being loaded.
func (s *Store) scanEndpoint(scan scan) (outbox.Endpoint, error) {
	var e outbox.Endpoint
	var uid, metadata, eventTypes, reason, retry, signing, filter sql.NullString
	var headers, secrets, credentials []byte
	var rateCount, ratePer, thinTTL sql.NullInt64
	err := scan(idTo{(*[16]byte)(&e.ID)}, &e.Tenant.Shard, &e.Tenant.ID, &uid, &e.URL, &e.Description, &metadata, &eventTypes, &headers, &secrets,
		&e.MaxInFlight, &rateCount, &ratePer, lengthTo{&e.Timeout}, &e.Ordering, &e.OnDead, &e.State, &reason, &retry, timeTo{&e.CreatedAt}, timeTo{&e.UpdatedAt}, timeTo{&e.ResumedAt},
		timeTo{&e.DiscardedAt}, timeTo{&e.DeletedAt},
		&credentials, &signing, &filter, &e.PayloadMode, &thinTTL)
	if err != nil {
		return e, err
	}
	e.UID = uid.String
	e.RateLimit = rateLimit(rateCount, ratePer)
	e.Filter = filter.String
	e.ThinTTL = time.Duration(thinTTL.Int64) * time.Microsecond
	if json.Unmarshal([]byte(signing.String), &e.Schemes) != nil {
		e.Schemes = nil
	}
	var flaws []outbox.Flaw
	if json.Unmarshal([]byte(metadata.String), &e.Metadata) != nil {
		flaws = append(flaws, outbox.FlawMetadata)
	}
	if json.Unmarshal([]byte(eventTypes.String), &e.EventTypes) != nil {
		e.EventTypes = nil // or only some of them
	}
	if reason.Valid && json.Unmarshal([]byte(reason.String), &e.StateReason) != nil {
		flaws = append(flaws, outbox.FlawReason)
	}
	if e.Retry, err = readRetry(retry.String); err != nil {
		flaws = append(flaws, outbox.FlawRetry)
	}
	if headers != nil {
		if plain, err := s.open(headers, headersPlace(&e)); err != nil || json.Unmarshal(plain, &e.Headers) != nil {
			e.Headers = nil
			flaws = append(flaws, outbox.FlawHeaders)
		}
	}
	if secrets != nil && s.openSecrets(secrets, &e) != nil {
		e.Secrets = nil
		flaws = append(flaws, outbox.FlawSecrets)
	}
	if credentials != nil {
		if plain, err := s.open(credentials, credentialsPlace(&e)); err != nil || json.Unmarshal(plain, &e.Credentials) != nil {
			e.Credentials = outbox.Credentials{}
			flaws = append(flaws, outbox.FlawCredential)
		}
	}
	e.Judge(flaws...)
	return e, nil
}

// rateLimit is a fixed limit as its columns have it, nil where they are NULL.
func rateLimit(count, per sql.NullInt64) *outbox.RateLimit {
	if !count.Valid || !per.Valid {
		return nil
	}
	return &outbox.RateLimit{Count: int(count.Int64), Per: time.Duration(per.Int64) * time.Microsecond}
}

// rateColumns is a fixed limit as columns, NULL where it is nil.
func rateColumns(limit *outbox.RateLimit) (count, per any) {
	if limit == nil {
		return nil, nil
	}
	return limit.Count, limit.Per.Microseconds()
}

// secretJSON is a secret inside the sealed list.
type secretJSON struct {
	Scheme    string `json:"scheme,omitempty"`
	Value     string `json:"value"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt int64  `json:"expires_at,omitempty"`
}

func (s *Store) sealSecrets(e *outbox.Endpoint) ([]byte, error) {
	if len(e.Secrets) == 0 {
		return nil, nil
	}
	list := make([]secretJSON, len(e.Secrets))
	for i, secret := range e.Secrets {
		list[i] = secretJSON{Scheme: secret.Scheme, Value: secret.Value, CreatedAt: micros(secret.CreatedAt)}
		if !secret.ExpiresAt.IsZero() {
			list[i].ExpiresAt = micros(secret.ExpiresAt)
		}
	}
	return s.seal([]byte(toJSON(list)), secretsPlace(e))
}

func (s *Store) openSecrets(sealed []byte, e *outbox.Endpoint) error {
	plain, err := s.open(sealed, secretsPlace(e))
	if err != nil {
		return err
	}
	var list []secretJSON
	if err := json.Unmarshal(plain, &list); err != nil {
		return errors.New("not a list of secrets") // the decoder's error may hold part of one
	}
	for _, stored := range list {
		secret := outbox.Secret{Scheme: stored.Scheme, Value: stored.Value, CreatedAt: fromMicros(stored.CreatedAt)}
		if stored.ExpiresAt != 0 {
			secret.ExpiresAt = fromMicros(stored.ExpiresAt)
		}
		e.Secrets = append(e.Secrets, secret)
	}
	return nil
}

func secretsPlace(e *outbox.Endpoint) string {
	return fmt.Sprintf("secrets of tenant %d endpoint %s", e.Tenant.ID, e.ID)
}

func headersPlace(e *outbox.Endpoint) string {
	return fmt.Sprintf("headers of tenant %d endpoint %s", e.Tenant.ID, e.ID)
}

func credentialsPlace(e *outbox.Endpoint) string {
	return fmt.Sprintf("credentials of tenant %d endpoint %s", e.Tenant.ID, e.ID)
}

// endpointByRef returns a living endpoint; of any tenant, by id alone, where tenant is zero.
func (s *Store) endpointByRef(r *session, tenant outbox.TenantRef, ref outbox.EndpointRef) (e outbox.Endpoint, err error) {
	query, args := `
		SELECT `+endpointColumns+`
		FROM waybill_endpoint e
		WHERE e.id = ? AND (e.tenant = ? OR ? = 0) AND e.deleted_at IS NULL`,
		[]any{ref.ID[:], int64(tenant.ID), int64(tenant.ID)}
	if ref.UID != "" && tenant.ID != 0 {
		query, args = `
		SELECT `+endpointColumns+`
		FROM waybill_endpoint e
		WHERE e.tenant = ? AND e.uid = ? AND e.deleted_at IS NULL`,
			[]any{int64(tenant.ID), ref.UID}
	}
	err = outbox.ErrNotFound
	if end := r.each(query, args, func(scan scan) error {
		e, err = s.scanEndpoint(scan)
		return errStop
	}); end != nil {
		return e, end
	}
	return e, err
}

// PutEndpoint changes an endpoint or makes it. An id that names none is ErrNotFound: ids are
// given by the store alone.
func (s *Store) PutEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint, exists bool) error) (e outbox.Endpoint, created bool, err error) {
	err = s.write(ctx, func(w *session) error {
		if err := tenantLives(w, tenant); err != nil {
			return err
		}
		var err error
		e, err = s.endpointByRef(w, tenant, ref)
		created = errors.Is(err, outbox.ErrNotFound) && (ref.UID != "" || ref.ID.IsZero())
		switch {
		case created:
			e = outbox.Endpoint{ID: outbox.NewEndpointID(now), Tenant: tenant}
			if e.Siblings, err = countEndpoints(w, tenant); err != nil { // there is one writer, so nobody makes another meanwhile
				return err
			}
		case err != nil:
			return err
		}
		id := e.ID
		if err := edit(&e, !created); err != nil {
			return err
		}
		e.ID, e.Tenant, e.Siblings = id, tenant, 0
		e, err = s.storeEndpoint(w, e, now, created)
		return err
	})
	if err != nil {
		return outbox.Endpoint{}, false, err
	}
	return e, created, nil
}

// EditEndpoint changes an endpoint that must exist.
func (s *Store) EditEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint) ([]outbox.Command, error)) (e outbox.Endpoint, err error) {
	err = s.write(ctx, func(w *session) error {
		var err error
		if e, err = s.endpointByRef(w, tenant, ref); err != nil {
			return err
		}
		id, owner := e.ID, e.Tenant
		commands, err := edit(&e)
		if err != nil {
			return err
		}
		e.ID, e.Tenant = id, owner
		if e, err = s.storeEndpoint(w, e, now, false); err != nil {
			return err
		}
		for _, command := range commands {
			if _, err := insertOutbox(w, commandRow(&e, command)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return outbox.Endpoint{}, err
	}
	return e, nil
}

// commandRow asks the owner of the endpoint's shard for something.
func commandRow(e *outbox.Endpoint, command outbox.Command) outbox.OutboxRow {
	return outbox.OutboxRow{
		Shard:    e.Tenant.Shard,
		Kind:     outbox.OutboxCommand,
		Tenant:   e.Tenant.ID,
		Endpoint: e.ID,
		Command:  command,
	}
}

// tenantLives makes sure that nothing is added to a deleted tenant.
func tenantLives(r *session, tenant outbox.TenantRef) error {
	var one int
	err := r.get(`
		SELECT 1
		FROM waybill_tenant
		WHERE id = ? AND shard = ? AND deleted_at IS NULL`,
		[]any{int64(tenant.ID), int64(tenant.Shard)}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return outbox.ErrNotFound
	}
	return err
}

// storeEndpoint writes the endpoint and reads it back, as the triggers left it.
func (s *Store) storeEndpoint(w *session, e outbox.Endpoint, now time.Time, created bool) (outbox.Endpoint, error) {
	secrets, err := s.sealSecrets(&e)
	if err != nil {
		return outbox.Endpoint{}, err
	}
	var headers []byte
	if len(e.Headers) > 0 {
		if headers, err = s.seal([]byte(toJSON(e.Headers)), headersPlace(&e)); err != nil {
			return outbox.Endpoint{}, err
		}
	}
	var credentials []byte
	if !e.Credentials.Empty() {
		if credentials, err = s.seal([]byte(toJSON(e.Credentials)), credentialsPlace(&e)); err != nil {
			return outbox.Endpoint{}, err
		}
	}
	signing := toJSON([]string{outbox.SchemeStandard})
	if len(e.Schemes) > 0 {
		signing = toJSON(e.Schemes)
	}
	var reason any
	if e.StateReason != nil {
		reason = toJSON(e.StateReason)
	}
	eventTypes := "[]"
	if len(e.EventTypes) > 0 {
		eventTypes = toJSON(e.EventTypes)
	}
	rateCount, ratePer := rateColumns(e.RateLimit)
	values := []any{
		textOrNull(e.UID), e.URL, e.Description, mapJSON(e.Metadata), eventTypes, headers, secrets, e.MaxInFlight, e.Timeout.Microseconds(),
		string(e.State), reason, storedRetry(e.Retry), microsOrNull(e.DiscardedAt), micros(now),
		string(cmp.Or(e.Ordering, outbox.OrderingNone)), string(cmp.Or(e.OnDead, outbox.OnDeadSkip)), rateCount, ratePer,
		credentials, signing, textOrNull(e.Filter), string(cmp.Or(e.PayloadMode, outbox.PayloadFull)), spanOrNull(e.ThinTTL),
	}
	if created {
		_, err = w.exec(`
			INSERT INTO waybill_endpoint
				(uid, url, description, metadata, event_types, headers, secrets, max_in_flight, timeout,
				state, state_reason, retry, discarded_at, updated_at, ordering, on_dead, rate_count, rate_per,
				credentials, signing, filter, payload_mode, thin_ttl, id, shard, tenant, created_at, resumed_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append(values, e.ID[:], int64(e.Tenant.Shard), int64(e.Tenant.ID), micros(now), micros(now))...)
	} else {
		if err = s.keepSealed(w, &e, &headers, &secrets, &credentials); err != nil {
			return outbox.Endpoint{}, err
		}
		values[5], values[6], values[18] = headers, secrets, credentials
		_, err = w.exec(`
			UPDATE waybill_endpoint
			SET uid = ?, url = ?, description = ?, metadata = ?, event_types = ?, headers = ?, secrets = ?, max_in_flight = ?, timeout = ?,
				state = ?, state_reason = ?, retry = ?, discarded_at = ?, updated_at = ?, ordering = ?, on_dead = ?, rate_count = ?, rate_per = ?,
				credentials = ?, signing = ?, filter = ?, payload_mode = ?, thin_ttl = ?
			WHERE id = ?`,
			append(values, e.ID[:])...)
	}
	if isUnique(err) {
		return outbox.Endpoint{}, outbox.ErrConflict
	}
	if err != nil {
		return outbox.Endpoint{}, err
	}
	return s.endpointByRef(w, e.Tenant, outbox.EndpointRef{ID: e.ID})
}

// keepSealed puts back what is stored sealed of an endpoint that exists, where it does not open and
// nothing else was given. A server started with the wrong key must not wipe the secrets of every
// endpoint somebody edits.
func (s *Store) keepSealed(w *session, e *outbox.Endpoint, headers, secrets, credentials *[]byte) error {
	if *headers != nil && *secrets != nil && *credentials != nil {
		return nil
	}
	var oldHeaders, oldSecrets, oldCredentials []byte
	err := w.get("SELECT headers, secrets, credentials FROM waybill_endpoint WHERE id = ?", []any{e.ID[:]}, &oldHeaders, &oldSecrets, &oldCredentials)
	if err != nil {
		return err
	}
	for _, column := range []struct {
		value *[]byte
		old   []byte
		place string
	}{
		{headers, oldHeaders, headersPlace(e)},
		{secrets, oldSecrets, secretsPlace(e)},
		{credentials, oldCredentials, credentialsPlace(e)},
	} {
		if *column.value != nil || column.old == nil {
			continue
		}
		if _, err := s.open(column.old, column.place); err != nil {
			*column.value = column.old
		}
	}
	return nil
}

// spanOrNull stores no length of time as NULL.
func spanOrNull(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Microseconds()
}

// DeleteEndpoint deletes the endpoint; its row stays, without secrets, for its history.
func (s *Store) DeleteEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, limit int) (pending int, err error) {
	err = s.write(ctx, func(w *session) error {
		e, err := s.endpointByRef(w, tenant, ref)
		if err != nil {
			return err
		}
		if _, err := w.exec(`
			UPDATE waybill_endpoint
			SET deleted_at = ?, updated_at = ?, headers = NULL, secrets = NULL, credentials = NULL
			WHERE id = ?`,
			micros(now), micros(now), e.ID[:]); err != nil {
			return err
		}
		cancel := outbox.Command{Name: outbox.CommandCancelEndpoint, Reason: outbox.ReasonEndpointDeleted}
		if _, err := insertOutbox(w, commandRow(&e, cancel)); err != nil {
			return err
		}
		pending, _, err = pendingOf(w, e.Tenant.Shard, e.ID, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return pending, nil
}

// pendingOf counts an endpoint's pending deliveries, at most limit, and finds when the oldest of
// those was planned.
func pendingOf(r *session, shard outbox.Shard, id outbox.EndpointID, limit int) (n int, oldest time.Time, err error) {
	err = r.get(`
		SELECT count(*), min(sendable_at)
		FROM (SELECT sendable_at FROM waybill_delivery WHERE shard = ? AND endpoint = ? LIMIT ?)`,
		[]any{int64(shard), id[:], limit}, &n, timeTo{&oldest})
	return n, oldest, err
}

// Endpoint returns a living endpoint.
func (s *Store) Endpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef) (e outbox.Endpoint, err error) {
	err = s.read(ctx, func(r *session) error {
		e, err = s.endpointByRef(r, tenant, ref)
		return err
	})
	return e, err
}

// Endpoints lists living endpoints.
func (s *Store) Endpoints(ctx context.Context, q outbox.EndpointQuery, page outbox.Page) (list []outbox.Endpoint, err error) {
	where, args := filter{}.
		and("e.deleted_at IS NULL").
		andIf(q.Tenant.ID != 0, "e.tenant = ?", int64(q.Tenant.ID)).
		andIf(q.State != "", "e.state = ?", string(q.State)).
		andIf(!q.After.IsZero() && page.Ascending, "e.id > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "e.id < ?", q.After[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+endpointColumns+`
			FROM waybill_endpoint e
			WHERE `+where+`
			ORDER BY e.id `+direction(page),
			args,
			func(scan scan) error {
				e, err := s.scanEndpoint(scan)
				if err != nil {
					return err
				}
				if q.EventType == "" || e.Matches(q.EventType) {
					list = append(list, e)
				}
				if len(list) == page.Limit {
					return errStop
				}
				return nil
			})
	})
	return list, err
}

// countEndpoints counts the tenant's living endpoints.
func countEndpoints(r *session, tenant outbox.TenantRef) (n int, err error) {
	err = r.get(`
		SELECT count(*)
		FROM waybill_endpoint
		WHERE tenant = ? AND deleted_at IS NULL`,
		[]any{int64(tenant.ID)}, &n)
	return n, err
}
