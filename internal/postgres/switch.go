package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Dispatch implements outbox.Switch.
func (s *Store) Dispatch(ctx context.Context) (outbox.DispatchState, error) {
	var state outbox.DispatchState
	err := s.read(ctx, people, func(b *pgx.Batch) { queueDispatch(b, &state) })
	return state, err
}

// queueDispatch reads the stop switch.
func queueDispatch(b *pgx.Batch, state *outbox.DispatchState) {
	b.Queue(`
		SELECT dispatch_paused, dispatch_reason, dispatch_at, dispatch_by, environment
		FROM waybill.setting`,
	).QueryRow(func(row pgx.Row) error {
		return row.Scan(&state.Paused, &state.Reason, intoTime(&state.At), &state.By, intoText(&state.Environment))
	})
}

// SetDispatch implements outbox.Switch.
func (s *Store) SetDispatch(ctx context.Context, state outbox.DispatchState) error {
	return s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			UPDATE waybill.setting
			SET dispatch_paused = $1, dispatch_reason = $2, dispatch_at = $3, dispatch_by = $4`,
			state.Paused, state.Reason, at(state.At), state.By)
		return nil
	})
}

// ClaimEnvironment implements outbox.Environments.
func (s *Store) ClaimEnvironment(ctx context.Context, name string) (string, error) {
	var is string
	err := s.edit(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			UPDATE waybill.setting
			SET environment = coalesce(environment, $1)
			RETURNING environment`,
			name).Scan(&is)
	})
	return is, err
}

// AdoptEnvironment implements outbox.Environments.
func (s *Store) AdoptEnvironment(ctx context.Context, name string) (former string, err error) {
	err = s.edit(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			SELECT coalesce(environment, '')
			FROM waybill.setting
			FOR UPDATE`).Scan(&former)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE waybill.setting
			SET environment = $1`,
			name)
		return err
	})
	return former, err
}
