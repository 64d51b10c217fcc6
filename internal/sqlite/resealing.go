package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Reseal implements outbox.Resealing.
func (s *Store) Reseal(ctx context.Context, at outbox.ResealAt, limit int) (done outbox.Resealed, err error) {
	if s.keys == nil {
		return done, errNoKeyring
	}
	err = s.write(ctx, func(w *session) (err error) {
		done = outbox.Resealed{Next: at}
		rows := 0
		switch at.Part {
		case outbox.ResealEndpoints:
			rows, err = s.resealEndpoints(w, &done, limit)
		case outbox.ResealSources:
			rows, err = s.resealSources(w, &done, limit)
		case outbox.ResealAnswers:
			rows, err = s.resealAnswers(w, &done, limit)
		}
		if rows < limit {
			done.Next = outbox.ResealAt{Part: at.Part + 1}
		}
		return err
	})
	return done, err
}

// renew seals a column again if an earlier key sealed it; NULL stays NULL.
func (s *Store) renew(column *[]byte, place string, done *outbox.Resealed) (changed bool) {
	if *column == nil {
		return false
	}
	renewed, changed, err := s.keys.Renew(*column, place)
	switch {
	case err != nil:
		done.Broken++
	case changed:
		*column = renewed
		done.Values++
	}
	return changed && err == nil
}

// sealedRow is a row with sealed columns.
type sealedRow struct {
	id      [16]byte
	tenant  int64
	key     string
	columns [3][]byte
}

func (s *Store) resealEndpoints(w *session, done *outbox.Resealed, limit int) (int, error) {
	var list []sealedRow
	err := w.each(`
		SELECT id, tenant, headers, secrets, credentials
		FROM waybill_endpoint
		WHERE id > ? AND deleted_at IS NULL
		ORDER BY id
		LIMIT ?`,
		[]any{done.Next.ID[:], limit},
		func(scan scan) error {
			var r sealedRow
			err := scan(idTo{&r.id}, &r.tenant, &r.columns[0], &r.columns[1], &r.columns[2])
			list = append(list, r)
			return err
		})
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		e := outbox.Endpoint{ID: r.id, Tenant: outbox.TenantRef{ID: outbox.TenantID(r.tenant)}}
		changed := s.renew(&r.columns[0], headersPlace(&e), done)
		changed = s.renew(&r.columns[1], secretsPlace(&e), done) || changed
		changed = s.renew(&r.columns[2], credentialsPlace(&e), done) || changed
		done.Next.ID = r.id
		if !changed {
			continue
		}
		if _, err := w.exec(`
			UPDATE waybill_endpoint
			SET headers = ?, secrets = ?, credentials = ?
			WHERE id = ?`,
			r.columns[0], r.columns[1], r.columns[2], r.id[:]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

func (s *Store) resealSources(w *session, done *outbox.Resealed, limit int) (int, error) {
	var list []sealedRow
	err := w.each(`
		SELECT id, secrets
		FROM waybill_source
		WHERE id > ? AND deleted_at IS NULL AND secrets IS NOT NULL
		ORDER BY id
		LIMIT ?`,
		[]any{done.Next.ID[:], limit},
		func(scan scan) error {
			var r sealedRow
			err := scan(idTo{&r.id}, &r.columns[0])
			list = append(list, r)
			return err
		})
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		done.Next.ID = r.id
		if !s.renew(&r.columns[0], sourcePlace(r.id), done) {
			continue
		}
		if _, err := w.exec(`
			UPDATE waybill_source
			SET secrets = ?
			WHERE id = ?`,
			r.columns[0], r.id[:]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

func (s *Store) resealAnswers(w *session, done *outbox.Resealed, limit int) (int, error) {
	var list []sealedRow
	err := w.each(`
		SELECT tenant, key, answer
		FROM waybill_request
		WHERE (tenant, key) > (?, ?) AND answer IS NOT NULL
		ORDER BY tenant, key
		LIMIT ?`,
		[]any{int64(done.Next.Tenant), done.Next.Key, limit},
		func(scan scan) error {
			var r sealedRow
			err := scan(&r.tenant, &r.key, &r.columns[0])
			list = append(list, r)
			return err
		})
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		scope := outbox.TenantRef{ID: outbox.TenantID(r.tenant)}
		done.Next.Tenant, done.Next.Key = scope.ID, r.key
		if !s.renew(&r.columns[0], answerPlace(scope, r.key), done) {
			continue
		}
		if _, err := w.exec(`
			UPDATE waybill_request
			SET answer = ?
			WHERE tenant = ? AND key = ?`,
			r.columns[0], r.tenant, r.key); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}
