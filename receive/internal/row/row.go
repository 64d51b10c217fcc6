// Package row is the state machine of one received event, as the stores that live in memory keep
// it. SQL and Lua say the same in their own words; receivetest's suites hold all of them to it.
package row

import (
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// Row is an event. The zero Row is one that nobody has seen. A Row is not safe for concurrent use.
type Row struct {
	State   receive.State
	Token   receive.Token // of the last run
	Until   time.Time     // Held: end of the lease
	Fence   int64
	Run     int
	Crashes int // runs in a row that ended without being settled
	Seen    bool
	First   time.Time // arrival
	Digest  [32]byte
	Reply   receive.Reply // Done
	Expires time.Time     // Done: not remembered from then on
}

// Claim gives the row to token if it is free.
func (r *Row) Claim(now time.Time, rec *receive.Record, token receive.Token, lease time.Duration) receive.Found {
	r.forget(now)
	if !r.Seen {
		r.Seen, r.First, r.Digest = true, now, rec.Digest
	}
	f := receive.Found{State: r.State, Since: now.Sub(r.First), OtherBody: r.Digest != rec.Digest}
	switch {
	case r.State == receive.Done:
		f.Reply = r.Reply
		return f
	case r.State == receive.Dead:
		return f
	case r.State == receive.Held && r.Token == token: // the same run, which did not hear the first answer
		f.Claim = r.claim(rec.Key)
		return f
	case r.State == receive.Held && now.Before(r.Until):
		f.Left = r.Until.Sub(now)
		return f
	}
	r.Begin(now, token, lease)
	f.State, f.Claim = receive.Held, r.claim(rec.Key)
	return f
}

// Begin starts a run of a row that is free, or whose lease is over.
func (r *Row) Begin(now time.Time, token receive.Token, lease time.Duration) {
	if r.State == receive.Held {
		r.Crashes++
	}
	r.State, r.Token, r.Until = receive.Held, token, now.Add(lease)
	r.Fence++
	r.Run++
}

func (r *Row) claim(key receive.Key) *receive.Claim {
	return &receive.Claim{Key: key, Token: r.Token, Granted: true, Fence: r.Fence, Run: r.Run, Crashes: r.Crashes}
}

// ClaimOf is the hold of the run that has the row.
func (r *Row) ClaimOf(key receive.Key) *receive.Claim { return r.claim(key) }

// Settle ends the run of c.
func (r *Row) Settle(now time.Time, c *receive.Claim, o receive.Outcome) error {
	mine := r.Token == c.Token
	switch {
	case o.Look && r.State == receive.Held && mine:
		return receive.ErrNotCommitted
	case mine && r.State == o.State: // a second time: the first answer was lost
		if o.State == receive.Held {
			return receive.ErrLeaseLost
		}
		return nil
	case o.Look || r.State != receive.Held || !mine:
		return receive.ErrLeaseLost
	}
	r.State, r.Crashes = o.State, 0
	if o.State == receive.Done {
		r.Reply, r.Expires = o.Reply, now.Add(o.Retain)
	}
	return nil
}

// Extend makes the lease end that much from now.
func (r *Row) Extend(now time.Time, c *receive.Claim, lease time.Duration) error {
	if r.State != receive.Held || r.Token != c.Token {
		return receive.ErrLeaseLost
	}
	if until := now.Add(lease); until.After(r.Until) {
		r.Until = until
	}
	return nil
}

// Revive makes a finished row free.
func (r *Row) Revive() error {
	if r.State != receive.Done && r.State != receive.Dead {
		return receive.ErrNotFound
	}
	r.State, r.Crashes = receive.Free, 0
	return nil
}

// forget turns a done row whose retention is over into one that nobody has seen, but for its fence
// and its runs: those never go back while the row is there.
func (r *Row) forget(now time.Time) {
	if r.State == receive.Done && !now.Before(r.Expires) {
		*r = Row{Fence: r.Fence, Run: r.Run}
	}
}

// Forgotten reports whether the row may be removed.
func (r *Row) Forgotten(now time.Time) bool {
	return r.State == receive.Done && !now.Before(r.Expires)
}
