package receive_test

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/row"
)

// playStore is a database with one row, at the other end of a bad line. A call may be applied late,
// applied with its answer lost, or never arrive.
type playStore struct {
	h       *history
	flaky   bool
	row     row.Row
	record  *receive.Record // nil: not written down
	due     time.Time
	letter  bool // written by Bury
	unsync  bool // written down, but not on the disk yet
	lock    *playTx
	blocked []func()
}

// playTx is a transaction of the handler's: it may hold the row's lock.
type playTx struct {
	open, holds bool
}

// storeOf is the store as one process reaches it.
type storeOf struct {
	*playStore
	p *process
}

var errGone = errors.New("play: this process is no more")

// ask sends op down the line. op runs under the history's lock; blocked is for a row that another
// transaction has locked.
func ask[R any](ctx context.Context, s storeOf, op func() (answer R, blocked bool)) (answer R, err error) {
	h := s.h
	if !s.p.step() {
		return answer, errGone
	}
	h.mu.Lock()
	there, back := h.ms(1, 6), h.ms(1, 6)
	lostAsk, lostAnswer := false, false
	if h.chaos() && s.flaky {
		switch x := h.rng.Float64(); {
		case x < 0.06:
			lostAsk = true
		case x < 0.14:
			lostAnswer = true
		case x < 0.22:
			there = h.ms(100, 5000)
		case x < 0.26:
			back = h.ms(100, 1000)
		}
		for _, d := range h.downs {
			if at := time.Since(h.start); at >= d[0] && at < d[1] {
				lostAsk = true
			}
		}
	}
	h.mu.Unlock()
	answered := make(chan R, 1)
	if !lostAsk {
		var try func()
		try = func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			r, blocked := op()
			if blocked {
				s.blocked = append(s.blocked, try)
				return
			}
			if !lostAnswer {
				time.AfterFunc(back, func() { answered <- r })
			}
		}
		time.AfterFunc(there, try)
	}
	select {
	case answer = <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	case <-h.over:
		return answer, errGone
	}
	// A process that is paused here does not notice that its context ended meanwhile.
	if !s.p.step() {
		return answer, errGone
	}
	return answer, err
}

func (s *playStore) unlock() {
	s.lock = nil
	blocked := s.blocked
	s.blocked = nil
	for _, f := range blocked {
		time.AfterFunc(0, f)
	}
}

func (s storeOf) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	return ask(ctx, s, func() (receive.Found, bool) {
		m := &s.h.mode.broken
		switch {
		case s.lock != nil && m.lockedIsSlow:
			return receive.Found{}, true
		case s.lock != nil:
			return receive.Found{State: receive.Held, Left: 100 * time.Millisecond}, false
		case m.noLease && s.row.State == receive.Held && s.row.Token != token:
			return receive.Found{State: receive.Held, Left: time.Second}, false
		}
		return s.row.Claim(time.Now(), r, token, lease), false
	})
}

func (s storeOf) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	answer, err := ask(ctx, s, func() (error, bool) {
		if s.lock != nil && !o.Look {
			return nil, true
		}
		was := s.row.State
		answer := s.settle(c, o)
		if was == receive.Done && s.row.State != receive.Done {
			s.h.bad("done-undone", "settle %v by %s", o.State, c.Token)
		}
		return answer, false
	})
	return errors.Join(err, answer)
}

func (s *playStore) settle(c *receive.Claim, o receive.Outcome) error {
	m := &s.h.mode.broken
	now := time.Now()
	force := false
	switch {
	case o.Look:
	case o.State == receive.Free && m.releaseByKey:
		force = s.row.State != receive.Free
	case o.State == receive.Free && m.releaseAnyState:
		force = s.row.Token == c.Token
	case o.State == receive.Free && m.degradedByKey:
		force = !c.Granted
	}
	if force {
		s.row.State = receive.Free
		return nil
	}
	err := s.row.Settle(now, c, o)
	if err != nil || o.Look {
		return err
	}
	s.due = now.Add(o.After)
	if o.State == receive.Free && m.releaseDeletes {
		s.row, s.record = row.Row{}, nil
	}
	return nil
}

func (s storeOf) Put(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
	return ask(ctx, s, func() ([]receive.Found, bool) {
		f := receive.Found{State: s.row.State}
		if s.record == nil {
			f.New = true
			kept := records[0]
			kept.ReceivedAt = time.Now()
			s.record, s.row, s.due = &kept, row.Row{Seen: true, First: time.Now()}, time.Now()
			if s.h.mode.broken.volatile && s.h.chaos() && s.h.chance(0.3) {
				s.unsync = true
				time.AfterFunc(s.h.ms(1, 900), s.powerCut)
			}
		}
		return []receive.Found{f}, false
	})
}

// powerCut is the database's, before its disk has the row.
func (s *playStore) powerCut() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.row.State != receive.Done && s.row.State != receive.Dead && s.h.effects == 0 {
		s.row, s.record = row.Row{}, nil
	}
	s.unsync = false
}

func (s storeOf) Take(ctx context.Context, _ string, _ int, lease time.Duration) ([]receive.Taken, error) {
	return ask(ctx, s, func() ([]receive.Taken, bool) {
		m, now := &s.h.mode.broken, time.Now()
		if s.record == nil || s.lock != nil {
			return nil, false
		}
		switch s.row.State {
		case receive.Free:
			if now.Before(s.due) {
				return nil, false
			}
		case receive.Held:
			if now.Before(s.row.Until) || m.noLease {
				return nil, false
			}
		default:
			return nil, false
		}
		s.row.Begin(now, receive.NewToken(), lease)
		if m.countedAtFailure {
			s.row.Crashes = 0
		}
		return []receive.Taken{{Record: *s.record, Claim: s.row.ClaimOf(s.record.Key)}}, false
	})
}

func (s storeOf) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	answer, err := ask(ctx, s, func() (error, bool) {
		if s.lock != nil {
			return nil, true
		}
		answer := s.row.Extend(time.Now(), c, lease)
		for _, r := range s.h.runs {
			if answer == nil && r.token == c.Token {
				r.until, r.deadline = s.row.Until, s.row.Until
			}
		}
		return answer, false
	})
	return errors.Join(err, answer)
}

func (s storeOf) Bury(ctx context.Context, _ *receive.Record, _ string) error {
	_, err := ask(ctx, s, func() (bool, bool) {
		s.letter = true
		return true, false
	})
	return err
}

func (s storeOf) Letters(context.Context, string) iter.Seq2[receive.DeadLetter, error] { return nil }
func (s storeOf) Revive(context.Context, receive.Key) error                            { return receive.ErrNotFound }

// claimsOnly is the store without its dead letters, as Redis is.
type claimsOnly struct{ s storeOf }

func (c claimsOnly) Claim(ctx context.Context, r *receive.Record, t receive.Token, d time.Duration) (receive.Found, error) {
	return c.s.Claim(ctx, r, t, d)
}

func (c claimsOnly) Settle(ctx context.Context, cl *receive.Claim, o receive.Outcome) error {
	return c.s.Settle(ctx, cl, o)
}

// commit is ConfirmTx and COMMIT in a transaction of the handler's. seen: by the store's own InTx,
// which tells the receiver that it saw the commit succeed; else the handler is hand-made.
func (s storeOf) commit(ctx context.Context, d *receive.Delivery, seen bool) error {
	h, m, c := s.h, &s.h.mode.broken, d.Claim()
	tx := &playTx{open: true}
	rollback := func(after time.Duration) {
		time.AfterFunc(after, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if tx.open {
				tx.open = false
				if tx.holds {
					s.unlock()
				}
			}
		})
	}
	s.p.atEnd(func() { rollback(h.ms(0, 3000)) })
	if m.autocommit { // done comes before the effects, by itself
		if err := s.Settle(ctx, c, d.Done()); err != nil {
			return err
		}
		if !s.p.step() {
			return errGone
		}
		h.effect()
		c.Committed()
		return nil
	}
	if !m.degradedSkips || c.Granted {
		mine, err := ask(ctx, s, func() (bool, bool) {
			if !tx.open {
				return false, false
			}
			if s.lock != nil {
				return false, true
			}
			held := s.row.State == receive.Held
			mine := held && s.row.Token == c.Token
			if !c.Granted { // insert, or take what is free
				mine = mine || s.row.State == receive.Free || held && !time.Now().Before(s.row.Until)
			}
			mine = mine || m.confirmUnfenced
			if mine && !m.confirmReads && !m.confirmUnfenced {
				s.lock, tx.holds = tx, true
			}
			return mine, false
		})
		if err != nil || !mine {
			rollback(locked(h, func() time.Duration { return h.ms(0, 500) }))
			return errors.Join(err, receive.ErrLeaseLost)
		}
	}
	c.InTx()
	if !s.p.step() {
		return errGone
	}
	if !seen && locked(h, func() bool { return h.chaos() && h.chance(0.1) }) {
		rollback(locked(h, func() time.Duration { return h.ms(0, 500) }))
		return nil // a handler's bug: it never commits
	}
	committed, err := ask(ctx, s, func() (bool, bool) {
		if !tx.open {
			return false, false
		}
		tx.open = false
		h.effects++
		if !m.degradedSkips || c.Granted {
			s.row.State, s.row.Token, s.row.Seen = receive.Done, c.Token, true
			s.row.Expires = time.Now().Add(d.Done().Retain)
		}
		if tx.holds {
			s.unlock()
		}
		return true, false
	})
	if err == nil && !committed {
		err = errGone
	}
	if err != nil {
		rollback(locked(h, func() time.Duration { return h.ms(0, 500) })) // the connection is closed
		if m.unansweredCommit {
			c.Committed()
			return nil
		}
		return err
	}
	if seen {
		c.Committed()
	}
	return nil
}
