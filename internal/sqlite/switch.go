package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Dispatch implements outbox.Switch.
func (s *Store) Dispatch(ctx context.Context) (state outbox.DispatchState, err error) {
	err = s.read(ctx, func(r *session) error {
		state, err = dispatchState(r)
		return err
	})
	return state, err
}

// dispatchState reads the stop switch.
func dispatchState(r *session) (state outbox.DispatchState, err error) {
	err = r.get(`
		SELECT dispatch_paused, dispatch_reason, dispatch_at, dispatch_by, coalesce(environment, '')
		FROM waybill_setting`,
		nil, &state.Paused, &state.Reason, timeTo{&state.At}, &state.By, &state.Environment)
	return state, err
}

// SetDispatch implements outbox.Switch.
func (s *Store) SetDispatch(ctx context.Context, state outbox.DispatchState) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			UPDATE waybill_setting
			SET dispatch_paused = ?, dispatch_reason = ?, dispatch_at = ?, dispatch_by = ?`,
			state.Paused, state.Reason, microsOrNull(state.At), state.By)
		return err
	})
}

// ClaimEnvironment implements outbox.Environments.
func (s *Store) ClaimEnvironment(ctx context.Context, name string) (is string, err error) {
	err = s.write(ctx, func(w *session) error {
		if _, err := w.exec(`
			UPDATE waybill_setting
			SET environment = ?
			WHERE environment IS NULL`,
			name); err != nil {
			return err
		}
		return w.get("SELECT environment FROM waybill_setting", nil, &is)
	})
	return is, err
}

// AdoptEnvironment implements outbox.Environments.
func (s *Store) AdoptEnvironment(ctx context.Context, name string) (former string, err error) {
	err = s.write(ctx, func(w *session) error {
		if err := w.get("SELECT coalesce(environment, '') FROM waybill_setting", nil, &former); err != nil {
			return err
		}
		_, err := w.exec(`
			UPDATE waybill_setting
			SET environment = ?`,
			name)
		return err
	})
	return former, err
}
