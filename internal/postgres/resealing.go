package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Reseal implements outbox.Resealing.
func (s *Store) Reseal(ctx context.Context, at outbox.ResealAt, limit int) (done outbox.Resealed, err error) {
	if s.keyring == nil {
		return done, errNoKeys
	}
	err = s.edit(ctx, func(tx pgx.Tx) error {
		done = outbox.Resealed{Next: at}
		rows := 0
		switch at.Part {
		case outbox.ResealEndpoints:
			rows, err = s.resealEndpoints(ctx, tx, &done, limit)
		case outbox.ResealSources:
			rows, err = s.resealSources(ctx, tx, &done, limit)
		case outbox.ResealAnswers:
			rows, err = s.resealAnswers(ctx, tx, &done, limit)
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
	renewed, changed, err := s.keyring.Renew(*column, place)
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
	shard   int16
	tenant  int64
	key     string
	columns [3][]byte
}

// sealedRows reads rows before any of them is changed.
func sealedRows(ctx context.Context, tx pgx.Tx, scan func(pgx.Rows, *sealedRow) error, sql string, args ...any) ([]sealedRow, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []sealedRow
	for rows.Next() {
		var r sealedRow
		if err := scan(rows, &r); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func (s *Store) resealEndpoints(ctx context.Context, tx pgx.Tx, done *outbox.Resealed, limit int) (int, error) {
	list, err := sealedRows(ctx, tx, func(rows pgx.Rows, r *sealedRow) error {
		return rows.Scan(intoID(&r.id), &r.tenant, &r.columns[0], &r.columns[1], &r.columns[2])
	}, `
		SELECT id, tenant, headers, secrets, credentials
		FROM waybill.endpoint
		WHERE id > $1 AND deleted_at IS NULL
		ORDER BY id
		LIMIT $2
		FOR UPDATE`,
		done.Next.ID, limit)
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		changed := false
		for i, column := range []string{"headers", "secrets", "credentials"} {
			place := endpointPlace(outbox.TenantID(r.tenant), outbox.EndpointID(r.id), column)
			changed = s.renew(&r.columns[i], place, done) || changed
		}
		done.Next.ID = r.id
		if !changed {
			continue
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.endpoint
			SET headers = $2, secrets = $3, credentials = $4
			WHERE id = $1`,
			r.id, r.columns[0], r.columns[1], r.columns[2]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

func (s *Store) resealSources(ctx context.Context, tx pgx.Tx, done *outbox.Resealed, limit int) (int, error) {
	list, err := sealedRows(ctx, tx, func(rows pgx.Rows, r *sealedRow) error {
		return rows.Scan(intoID(&r.id), &r.columns[0])
	}, `
		SELECT id, secrets
		FROM waybill.source
		WHERE id > $1 AND deleted_at IS NULL AND secrets IS NOT NULL
		ORDER BY id
		LIMIT $2
		FOR UPDATE`,
		done.Next.ID, limit)
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		done.Next.ID = r.id
		if !s.renew(&r.columns[0], sourcePlace(outbox.SourceID(r.id)), done) {
			continue
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.source
			SET secrets = $2
			WHERE id = $1`,
			r.id, r.columns[0]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

func (s *Store) resealAnswers(ctx context.Context, tx pgx.Tx, done *outbox.Resealed, limit int) (int, error) {
	list, err := sealedRows(ctx, tx, func(rows pgx.Rows, r *sealedRow) error {
		return rows.Scan(&r.shard, &r.tenant, &r.key, &r.columns[0])
	}, `
		SELECT shard, tenant, key, answer
		FROM waybill.idempotency
		WHERE (shard, tenant, key) > ($1, $2, $3) AND kind = 1 AND answer IS NOT NULL
		ORDER BY shard, tenant, key
		LIMIT $4
		FOR UPDATE`,
		int16(done.Next.Shard), int64(done.Next.Tenant), done.Next.Key, limit)
	if err != nil {
		return 0, err
	}
	for _, r := range list {
		scope := outbox.TenantRef{ID: outbox.TenantID(r.tenant), Shard: outbox.Shard(r.shard)}
		done.Next.Shard, done.Next.Tenant, done.Next.Key = scope.Shard, scope.ID, r.key
		if !s.renew(&r.columns[0], answerPlace(scope, r.key), done) {
			continue
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.idempotency
			SET answer = $4
			WHERE shard = $1 AND tenant = $2 AND kind = 1 AND key = $3`,
			r.shard, r.tenant, r.key, r.columns[0]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}
