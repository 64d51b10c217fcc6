package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const endpointColumns = `
	id, tenant, shard, uid, url, description, metadata, event_types, headers, secrets, max_in_flight,
	rate_count, rate_per, timeout, ordering, on_dead, state, state_reason, retry, created_at, updated_at, resumed_at, discarded_at, deleted_at,
	credentials, signing, filter, payload_mode, thin_ttl`

// collectEndpoints reads endpointColumns row by row. A row that cannot be used is part of the
// list, with its fault.
func (s *Store) collectEndpoints(list *[]outbox.Endpoint) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var e outbox.Endpoint
			var shard int16
			var maxInFlight, rateCount *int
			var ratePer, thinTTL *time.Duration
			var metadata, headers, secrets, credentials, reason, retry []byte
			var eventTypes, signing pgtype.FlatArray[zeronull.Text] // one that is NULL must not break the whole list
			err := rows.Scan(
				intoID(&e.ID), &e.Tenant.ID, &shard, intoText(&e.UID), &e.URL, &e.Description, &metadata, &eventTypes, &headers, &secrets, &maxInFlight,
				&rateCount, &ratePer, &e.Timeout, &e.Ordering, &e.OnDead, &e.State, &reason, &retry, &e.CreatedAt, &e.UpdatedAt, &e.ResumedAt, intoTime(&e.DiscardedAt), intoTime(&e.DeletedAt),
				&credentials, &signing, intoText(&e.Filter), &e.PayloadMode, &thinTTL)
			if err != nil {
				return err
			}
			e.Tenant.Shard = outbox.Shard(shard)
			if maxInFlight != nil {
				e.MaxInFlight = *maxInFlight
			}
			e.RateLimit = rateLimit(rateCount, ratePer)
			for _, pattern := range eventTypes {
				e.EventTypes = append(e.EventTypes, string(pattern))
			}
			for _, scheme := range signing {
				e.Schemes = append(e.Schemes, string(scheme))
			}
			if thinTTL != nil {
				e.ThinTTL = *thinTTL
			}
			flaws := s.decodeEndpoint(&e, metadata, headers, secrets, reason, retry)
			if credentials != nil && s.open(credentials, endpointPlace(e.Tenant.ID, e.ID, "credentials"), &e.Credentials) != nil {
				flaws = append(flaws, outbox.FlawCredential)
			}
			e.Judge(flaws...)
			*list = append(*list, e)
		}
		return rows.Err()
	}
}

// decodeEndpoint fills in what is stored as JSON or sealed, and returns what cannot be read.
func (s *Store) decodeEndpoint(e *outbox.Endpoint, metadata, headers, secrets, reason, retry []byte) (flaws []outbox.Flaw) {
	if json.Unmarshal(metadata, &e.Metadata) != nil {
		flaws = append(flaws, outbox.FlawMetadata)
	}
	if reason != nil && json.Unmarshal(reason, &e.StateReason) != nil {
		flaws = append(flaws, outbox.FlawReason)
	}
	var policy retryText
	if json.Unmarshal(retry, &policy) != nil {
		flaws = append(flaws, outbox.FlawRetry)
	}
	e.Retry = policy.policy()
	if headers != nil && s.open(headers, endpointPlace(e.Tenant.ID, e.ID, "headers"), &e.Headers) != nil {
		flaws = append(flaws, outbox.FlawHeaders)
	}
	var stored []storedSecret
	if secrets != nil && s.open(secrets, endpointPlace(e.Tenant.ID, e.ID, "secrets"), &stored) != nil {
		flaws = append(flaws, outbox.FlawSecrets)
	}
	for _, secret := range stored {
		e.Secrets = append(e.Secrets, outbox.Secret(secret))
	}
	return flaws
}

// rateLimit is a fixed limit as its columns have it, nil where they are NULL.
func rateLimit(count *int, per *time.Duration) *outbox.RateLimit {
	if count == nil || per == nil {
		return nil
	}
	return &outbox.RateLimit{Count: *count, Per: *per}
}

// rateColumns is a fixed limit as columns, NULL where it is nil.
func rateColumns(limit *outbox.RateLimit) (count *int, per *time.Duration) {
	if limit == nil {
		return nil, nil
	}
	return &limit.Count, &limit.Per
}

// storedSecret is outbox.Secret with names for its fields.
type storedSecret struct {
	Scheme    string    `json:"scheme,omitempty"`
	Value     string    `json:"value"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// endpointPlace binds a sealed value to the row and column it was written for.
func endpointPlace(tenant outbox.TenantID, endpoint outbox.EndpointID, column string) string {
	return fmt.Sprintf("tenant %d endpoint %s %s", tenant, endpoint, column)
}

// errNoKeys says that the store was opened by a command that has no business with secrets.
var errNoKeys = errors.New("no encryption key is configured")

func (s *Store) open(sealed []byte, place string, into any) error {
	if s.keyring == nil {
		return errNoKeys
	}
	plain, err := s.keyring.Open(sealed, place)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}

func (s *Store) seal(value any, place string) ([]byte, error) {
	if s.keyring == nil {
		return nil, errNoKeys
	}
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return s.keyring.Seal(plain, place), nil
}

// endpointRow runs a query for one endpoint.
func (s *Store) endpointRow(ctx context.Context, tx pgx.Tx, sql string, args ...any) (outbox.Endpoint, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return outbox.Endpoint{}, err
	}
	var list []outbox.Endpoint
	err = s.collectEndpoints(&list)(rows)
	return only(list, err)
}

// Endpoint implements outbox.Configuration.
func (s *Store) Endpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef) (outbox.Endpoint, error) {
	var list []outbox.Endpoint
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		if ref.UID != "" {
			b.Queue(`
				SELECT `+endpointColumns+`
				FROM waybill.endpoint
				WHERE tenant = $1 AND uid = $2 AND deleted_at IS NULL`,
				int64(tenant.ID), ref.UID,
			).Query(s.collectEndpoints(&list))
			return
		}
		b.Queue(`
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE id = $1 AND ($2 = 0 OR tenant = $2) AND deleted_at IS NULL`,
			uuid(ref.ID), int64(tenant.ID),
		).Query(s.collectEndpoints(&list))
	})
	return only(list, err)
}

// Endpoints implements outbox.Configuration.
func (s *Store) Endpoints(ctx context.Context, q outbox.EndpointQuery, page outbox.Page) ([]outbox.Endpoint, error) {
	beyond, order := past(page, "id", "$3"), direction(page)
	var list []outbox.Endpoint
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE deleted_at IS NULL
				AND ($1 = 0 OR tenant = $1)
				AND ($2 = '' OR state = $2)
				AND ($3::uuid IS NULL OR `+beyond+`)
				AND ($5::text[] IS NULL OR event_types && $5 OR event_types = '{}')
			ORDER BY id `+order+`
			LIMIT $4`,
			int64(q.Tenant.ID), string(q.State), uuid(q.After), page.Limit, patternsOf(q.EventType),
		).Query(s.collectEndpoints(&list))
	})
	return list, err
}

// patternsOf lists every pattern that covers an event type: itself, "*", and "prefix.*" for each
// of its prefixes. nil for no type.
func patternsOf(eventType string) []string {
	if eventType == "" {
		return nil
	}
	patterns := []string{"*", eventType}
	for i := range eventType {
		if eventType[i] == '.' {
			patterns = append(patterns, eventType[:i]+".*")
		}
	}
	return patterns
}

// PutEndpoint implements outbox.Configuration.
func (s *Store) PutEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint, exists bool) error) (outbox.Endpoint, bool, error) {
	var e outbox.Endpoint
	var created bool
	once := func(tx pgx.Tx) (err error) {
		if err := lockLivingTenant(ctx, tx, tenant); err != nil {
			return err
		}
		e, err = s.lockEndpoint(ctx, tx, tenant, ref)
		switch {
		case err == nil:
			created = false
			if err := edit(&e, true); err != nil {
				return err
			}
			e, err = s.updateEndpoint(ctx, tx, e, now)
		case errors.Is(err, outbox.ErrNotFound) && (ref.UID != "" || ref.ID.IsZero()):
			created = true
			e = outbox.Endpoint{ID: outbox.NewEndpointID(now), Tenant: tenant}
			if e.Siblings, err = countSiblings(ctx, tx, tenant); err != nil {
				return err
			}
			if err := edit(&e, false); err != nil {
				return err
			}
			e.Siblings = 0
			e, err = s.insertEndpoint(ctx, tx, e, now)
		}
		return err
	}
	for {
		err := s.edit(ctx, once)
		if !violates(err, "endpoint_uid") {
			return e, created, err
		}
		// Either the name belongs to another endpoint, or somebody made this one in between;
		// then it is there to be edited now.
		if ref.UID == "" || !created || e.UID != ref.UID {
			return outbox.Endpoint{}, false, outbox.ErrConflict
		}
	}
}

// countSiblings counts the tenant's living endpoints, and lets nobody else make one before this
// transaction ends. The tenant's row cannot serve as the lock: two that hold it in share would
// wait for each other to have it alone.
func countSiblings(ctx context.Context, tx pgx.Tx, tenant outbox.TenantRef) (n int, err error) {
	if _, err := tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock(hashtextextended('waybill endpoints of ' || $1::bigint, 0))`, int64(tenant.ID)); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `
		SELECT count(*)
		FROM waybill.endpoint
		WHERE tenant = $1 AND deleted_at IS NULL`,
		int64(tenant.ID)).Scan(&n)
	return n, err
}

// EditEndpoint implements outbox.Configuration.
func (s *Store) EditEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, edit func(e *outbox.Endpoint) ([]outbox.Command, error)) (outbox.Endpoint, error) {
	var e outbox.Endpoint
	err := s.edit(ctx, func(tx pgx.Tx) (err error) {
		e, err = s.lockEndpoint(ctx, tx, tenant, ref)
		if err != nil {
			return err
		}
		commands, err := edit(&e)
		if err != nil {
			return err
		}
		for _, c := range commands {
			if err := insertCommand(ctx, tx, e.Tenant, e.ID, c); err != nil {
				return err
			}
		}
		e, err = s.updateEndpoint(ctx, tx, e, now)
		return err
	})
	if violates(err, "endpoint_uid") {
		err = outbox.ErrConflict
	}
	return e, err
}

// DeleteEndpoint implements outbox.Configuration.
func (s *Store) DeleteEndpoint(ctx context.Context, tenant outbox.TenantRef, ref outbox.EndpointRef, now time.Time, limit int) (int, error) {
	var pending int
	err := s.edit(ctx, func(tx pgx.Tx) error {
		e, err := s.lockEndpoint(ctx, tx, tenant, ref)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.endpoint
			SET deleted_at = $2, updated_at = $2, headers = NULL, secrets = NULL, credentials = NULL
			WHERE id = $1`,
			uuid(e.ID), now); err != nil {
			return err
		}
		if err := insertCommand(ctx, tx, e.Tenant, e.ID, outbox.Command{Name: outbox.CommandCancelEndpoint, Reason: outbox.ReasonEndpointDeleted}); err != nil {
			return err
		}
		pending, err = countPending(ctx, tx, "shard = $2 AND endpoint = $3", limit, int16(e.Tenant.Shard), uuid(e.ID))
		return err
	})
	return pending, err
}

// lockLivingTenant keeps the tenant from being deleted while an endpoint is added to it.
func lockLivingTenant(ctx context.Context, tx pgx.Tx, tenant outbox.TenantRef) error {
	var one int
	err := tx.QueryRow(ctx, `
		SELECT 1
		FROM waybill.tenant
		WHERE id = $1 AND deleted_at IS NULL
		FOR SHARE`,
		int64(tenant.ID)).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return outbox.ErrNotFound
	}
	return err
}

func (s *Store) lockEndpoint(ctx context.Context, tx pgx.Tx, tenant outbox.TenantRef, ref outbox.EndpointRef) (outbox.Endpoint, error) {
	if ref.UID != "" {
		return s.endpointRow(ctx, tx, `
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE tenant = $1 AND uid = $2 AND deleted_at IS NULL
			FOR UPDATE`,
			int64(tenant.ID), ref.UID)
	}
	return s.endpointRow(ctx, tx, `
		SELECT `+endpointColumns+`
		FROM waybill.endpoint
		WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL
		FOR UPDATE`,
		int64(tenant.ID), uuid(ref.ID))
}

// sealed returns the columns of an endpoint that are stored sealed, NULL where there is nothing.
func (s *Store) sealed(e *outbox.Endpoint) (headers, secrets, credentials []byte, err error) {
	if len(e.Headers) > 0 {
		headers, err = s.seal(e.Headers, endpointPlace(e.Tenant.ID, e.ID, "headers"))
		if err != nil {
			return nil, nil, nil, err
		}
	}
	if !e.Credentials.Empty() {
		credentials, err = s.seal(e.Credentials, endpointPlace(e.Tenant.ID, e.ID, "credentials"))
		if err != nil {
			return nil, nil, nil, err
		}
	}
	if len(e.Secrets) > 0 {
		stored := make([]storedSecret, len(e.Secrets))
		for i, secret := range e.Secrets {
			stored[i] = storedSecret(secret)
		}
		secrets, err = s.seal(stored, endpointPlace(e.Tenant.ID, e.ID, "secrets"))
	}
	return headers, secrets, credentials, err
}

// signingColumn is how an endpoint's deliveries are signed, as a column.
func signingColumn(e *outbox.Endpoint) []string {
	if len(e.Schemes) == 0 {
		return []string{outbox.SchemeStandard}
	}
	return e.Schemes
}

// spanOrNull is a length of time as a column, NULL where there is none.
func spanOrNull(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

func (s *Store) insertEndpoint(ctx context.Context, tx pgx.Tx, e outbox.Endpoint, now time.Time) (outbox.Endpoint, error) {
	headers, secrets, credentials, err := s.sealed(&e)
	if err != nil {
		return outbox.Endpoint{}, err
	}
	rateCount, ratePer := rateColumns(e.RateLimit)
	row, err := s.endpointRow(ctx, tx, `
		INSERT INTO waybill.endpoint
			(id, tenant, shard, uid, url, description, metadata, event_types, headers, secrets, max_in_flight,
			timeout, state, state_reason, retry, created_at, updated_at, resumed_at, discarded_at, ordering, on_dead, rate_count, rate_per,
			credentials, signing, filter, payload_mode, thin_ttl)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
		RETURNING `+endpointColumns,
		uuid(e.ID), int64(e.Tenant.ID), int16(e.Tenant.Shard), zeronull.Text(e.UID), e.URL, e.Description,
		storedMap(e.Metadata), e.EventTypes, headers, secrets, zeronull.Int4(e.MaxInFlight),
		e.Timeout, string(e.State), e.StateReason, storedRetry(e.Retry), now, at(e.DiscardedAt),
		string(cmp.Or(e.Ordering, outbox.OrderingNone)), string(cmp.Or(e.OnDead, outbox.OnDeadSkip)), rateCount, ratePer,
		credentials, signingColumn(&e), zeronull.Text(e.Filter), string(cmp.Or(e.PayloadMode, outbox.PayloadFull)), spanOrNull(e.ThinTTL))
	if err != nil {
		return e, err // with the name that was asked for
	}
	return row, nil
}

func (s *Store) updateEndpoint(ctx context.Context, tx pgx.Tx, e outbox.Endpoint, now time.Time) (outbox.Endpoint, error) {
	headers, secrets, credentials, err := s.sealed(&e)
	if err != nil {
		return outbox.Endpoint{}, err
	}
	// A value that did not open must not be overwritten by nothing: the key may come back.
	keepHeaders := e.Has(outbox.FlawHeaders) && len(e.Headers) == 0
	keepSecrets := e.Has(outbox.FlawSecrets) && len(e.Secrets) == 0
	keepCredentials := e.Has(outbox.FlawCredential) && e.Credentials.Empty()
	rateCount, ratePer := rateColumns(e.RateLimit)
	return s.endpointRow(ctx, tx, `
		UPDATE waybill.endpoint
		SET uid = $2, url = $3, description = $4, metadata = $5, event_types = $6,
			headers = CASE WHEN $15 THEN headers ELSE $7 END,
			secrets = CASE WHEN $16 THEN secrets ELSE $8 END,
			max_in_flight = $9, timeout = $10, state = $11, state_reason = $12, retry = $13,
			updated_at = $14, discarded_at = $17, ordering = $18, on_dead = $19, rate_count = $20, rate_per = $21,
			credentials = CASE WHEN $22 THEN credentials ELSE $23 END,
			signing = $24, filter = $25, payload_mode = $26, thin_ttl = $27
		WHERE id = $1
		RETURNING `+endpointColumns,
		uuid(e.ID), zeronull.Text(e.UID), e.URL, e.Description, storedMap(e.Metadata), e.EventTypes,
		headers, secrets, zeronull.Int4(e.MaxInFlight), e.Timeout, string(e.State), e.StateReason,
		storedRetry(e.Retry), now, keepHeaders, keepSecrets, at(e.DiscardedAt),
		string(cmp.Or(e.Ordering, outbox.OrderingNone)), string(cmp.Or(e.OnDead, outbox.OnDeadSkip)), rateCount, ratePer,
		keepCredentials, credentials, signingColumn(&e), zeronull.Text(e.Filter), string(cmp.Or(e.PayloadMode, outbox.PayloadFull)), spanOrNull(e.ThinTTL))
}
