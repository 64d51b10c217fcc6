// Package redisstore keeps claims in Redis 5 or later. It serves Sync only: Redis may answer before
// the disk has it, so an Inbox on it does not compile.
//
// There is one key for each event, so a cluster needs no hash tags, and every call is one script on
// it. The lease is a time inside the value, judged by Redis' own clock; the key itself lives much
// longer. Were the lease the key's own time to live, the fence would start again with every crash,
// and live claims would be the first that volatile-ttl evicts.
package redisstore

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-dev/waybill/receive"
)

// Client is what is needed of a redis.UniversalClient: *redis.Client, *redis.ClusterClient, a ring or
// a failover client.
type Client interface {
	redis.Scripter
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
}

// unsettled is how long the fence and the run count of an event that is not done are remembered.
const unsettled = receive.ClaimMemory

// New keeps claims under the prefix "waybill:receive:". A failover to a replica, and a Redis that is
// wiped, forget claims and successes: events then run again, they are not lost.
func New(rdb Client) *Store { return &Store{rdb} }

// Store is a receive.ClaimStore.
type Store struct{ rdb Client }

var (
	_ receive.ClaimStore = (*Store)(nil)
	_ receive.Checker    = (*Store)(nil)
)

var (
	//go:embed claim.lua
	claimLua string
	//go:embed settle.lua
	settleLua string

	claimScript  = redis.NewScript(claimLua)
	settleScript = redis.NewScript(settleLua)
)

func keyOf(key receive.Key) string {
	hash := key.Hash()
	return "waybill:receive:" + hex.EncodeToString(hash[:])
}

// Claim implements receive.ClaimStore.
func (s *Store) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	answer, err := s.run(ctx, claimScript, keyOf(r.Key), token[:], lease.Microseconds(), r.Digest[:], unsettled.Milliseconds())
	if err != nil {
		return receive.Found{}, err
	}
	v := reader{answer: answer}
	granted, state := v.number() == 1, receive.State(v.number())
	fence, run, crashes := v.number(), v.number(), v.number()
	left, since := v.number(), v.number()
	f := receive.Found{State: state, Since: micros(since), OtherBody: v.text() != string(r.Digest[:])}
	reply := receive.Reply{Status: int(v.number()), ContentType: v.text(), Body: []byte(v.text())}
	if v.err != nil {
		return receive.Found{}, v.err
	}
	switch {
	case granted:
		f.Claim = &receive.Claim{Key: r.Key, Token: token, Granted: true, Fence: fence, Run: int(run), Crashes: int(crashes)}
	case state == receive.Held:
		f.Left = micros(left)
	case state == receive.Done:
		f.Reply = reply
	}
	return f, nil
}

// Settle implements receive.ClaimStore.
func (s *Store) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	look := 0
	if o.Look {
		look = 1
	}
	keep := unsettled
	if o.State == receive.Done {
		keep = o.Retain
	}
	answer, err := s.run(ctx, settleScript, keyOf(c.Key), c.Token[:], int(o.State), look, max(keep.Milliseconds(), 1),
		o.Reply.Status, o.Reply.ContentType, o.Reply.Body)
	if err != nil {
		return err
	}
	v := reader{answer: answer}
	switch verdict := v.text(); {
	case v.err != nil:
		return v.err
	case verdict == "held":
		return receive.ErrNotCommitted
	case verdict == "lost":
		return receive.ErrLeaseLost
	}
	return nil
}

// run sends a script and does not wait longer than ctx lasts. A go-redis client by default waits for
// its own ReadTimeout, whatever the context says; that is longer than a provider waits for us.
func (s *Store) run(ctx context.Context, script *redis.Script, key string, args ...any) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		answer []any
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := script.Run(ctx, s.rdb, []string{key}, args...).Slice()
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Check implements receive.Checker: whether Redis throws claims away when its memory is full. Where
// CONFIG is forbidden (managed Redis) it says that it could not look.
func (s *Store) Check(ctx context.Context) ([]receive.Problem, error) {
	found, err := s.rdb.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		var refused redis.Error
		if !errors.As(err, &refused) {
			return nil, err // Redis itself did not answer
		}
		return []receive.Problem{{
			Rule: receive.Unchecked, Harm: receive.Told,
			Detail: "Redis does not let its configuration be read, so it is not known whether it evicts claims",
			Remedy: "See to it that maxmemory-policy is noeviction",
		}}, nil
	}
	policy := found["maxmemory-policy"]
	if policy == "" || policy == "noeviction" {
		return nil, nil
	}
	return []receive.Problem{{
		Rule: receive.Evicts, Harm: receive.Repeats,
		Detail: fmt.Sprintf("Redis' maxmemory-policy is %s: when its memory is full it forgets claims and successes, and events run again", policy),
		Remedy: "Set maxmemory-policy to noeviction, and watch its memory",
	}}, nil
}

// reader takes the values of a script's answer one after the other.
type reader struct {
	answer []any
	err    error
}

func (r *reader) text() string {
	if r.err != nil {
		return ""
	}
	if len(r.answer) == 0 {
		r.err = errors.New("redisstore: the script's answer is short")
		return ""
	}
	v := r.answer[0]
	r.answer = r.answer[1:]
	s, ok := v.(string)
	if !ok && v != nil {
		r.err = fmt.Errorf("redisstore: the script answered a %T", v)
	}
	return s
}

// number is 0 for an empty text.
func (r *reader) number() int64 {
	s := r.text()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("redisstore: %w", err)
	}
	return n
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
