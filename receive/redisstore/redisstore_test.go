package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-dev/waybill/internal/redistest"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/receive/redisstore"
)

const lease = 10 * time.Minute

func client(t *testing.T, socket string, edit func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, PoolSize: 20}
	if edit != nil {
		edit(options)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// rewind lets Redis' clock run by moving back what it knows. Keys that would be gone are deleted.
var rewind = redis.NewScript(`
	for _, key in ipairs(redis.call('KEYS', '*')) do
		local left = redis.call('PTTL', key)
		if left <= tonumber(ARGV[1]) / 1000 then
			redis.call('DEL', key)
		else
			for _, field in ipairs({'until', 'since'}) do
				local v = redis.call('HGET', key, field)
				if v then redis.call('HSET', key, field, string.format('%.0f', v - ARGV[1])) end
			end
			redis.call('PEXPIRE', key, string.format('%.0f', left - ARGV[1] / 1000))
		end
	end`)

func advance(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	if err := rewind.Run(t.Context(), rdb, nil, d.Microseconds()).Err(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
}

func TestStore_keepsTheContract(t *testing.T) {
	server := redistest.Start(t)
	rdb := client(t, server.Socket(), nil)
	receivetest.TestClaimStore(t, func(t *testing.T) (receive.ClaimStore, func(time.Duration)) {
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return redisstore.New(rdb), func(d time.Duration) { advance(t, rdb, d) }
	})
}

func TestStore_bearsTheScenarios(t *testing.T) {
	server := redistest.Start(t)
	rdb := client(t, server.Socket(), nil)
	wipe := func() {
		if err := rdb.FlushAll(context.WithoutCancel(t.Context())).Err(); err != nil {
			t.Error(err)
		}
	}
	receivetest.TestReceivers(t, func(t *testing.T) receivetest.Bench {
		wipe()
		return receivetest.Bench{Claims: redisstore.New(rdb), Advance: func(d time.Duration) { advance(t, rdb, d) }, Wipe: wipe}
	})
}

func claim(t *testing.T, s *redisstore.Store, id string, token receive.Token) (receive.Found, error) {
	t.Helper()
	r := receivetest.NewRecord("billing", id, "{}")
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	return s.Claim(ctx, &r, token, lease)
}

func mustClaim(t *testing.T, s *redisstore.Store, id string) receive.Found {
	t.Helper()
	f, err := claim(t, s, id, receive.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// One key for each event, and it outlives its lease by far: else a crash would start the fence again.
func TestStore_keepsOneKeyThatOutlivesTheLease(t *testing.T) {
	server := redistest.Start(t)
	rdb := client(t, server.Socket(), nil)
	s := redisstore.New(rdb)
	f := mustClaim(t, s, "evt_1")
	ttl := func() time.Duration {
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) != 1 || !strings.HasPrefix(keys[0], "waybill:receive:") {
			t.Fatalf("keys %v, %v", keys, err)
		}
		left, err := rdb.PTTL(t.Context(), keys[0]).Result()
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	if left := ttl(); left < 6*24*time.Hour {
		t.Errorf("a claim of %v is forgotten after %v", lease, left)
	}
	if err := s.Settle(t.Context(), f.Claim, receive.Outcome{State: receive.Done, Retain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if left := ttl(); left > time.Hour || left < 59*time.Minute {
		t.Errorf("done for an hour, forgotten after %v", left)
	}
}

// A Redis that is killed is an error within the budget; one that kept its log knows everything.
func TestStore_redisKilledAndBack(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := redisstore.New(client(t, server.Socket(), nil))
	held, done := mustClaim(t, s, "held"), mustClaim(t, s, "done")
	if err := s.Settle(t.Context(), done.Claim, receive.Outcome{State: receive.Done, Retain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	began := time.Now()
	if _, err := claim(t, s, "evt_1", receive.NewToken()); err == nil {
		t.Error("claimed from a dead Redis")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	if err := s.Settle(t.Context(), held.Claim, receive.Outcome{State: receive.Done, Retain: time.Hour}); err == nil || errors.Is(err, receive.ErrLeaseLost) {
		t.Errorf("settled in a dead Redis: %v", err)
	}
	server.Restart()
	if f := mustClaim(t, s, "held"); f.State != receive.Held || f.Claim != nil {
		t.Errorf("the claim is %v", f.State)
	}
	if f := mustClaim(t, s, "done"); f.State != receive.Done {
		t.Errorf("the success is %v", f.State)
	}
	if err := s.Settle(t.Context(), held.Claim, receive.Outcome{State: receive.Done, Retain: time.Hour}); err != nil {
		t.Errorf("the run that goes on cannot settle: %v", err)
	}
}

// A Redis that is wiped, or whose replica did not have the claim, lets an event run again. It never
// lets an old run settle what a new one has.
func TestStore_redisWiped(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(client(t, server.Socket(), nil))
	a := mustClaim(t, s, "evt_1").Claim
	server.Kill()
	server.Restart()
	for _, o := range []receive.Outcome{{State: receive.Done, Retain: time.Hour}, {State: receive.Free}} {
		if err := s.Settle(t.Context(), a, o); !errors.Is(err, receive.ErrLeaseLost) {
			t.Errorf("%v of a forgotten claim: %v", o.State, err)
		}
	}
	b := mustClaim(t, s, "evt_1").Claim
	if b == nil {
		t.Fatal("not granted")
	}
	if err := s.Settle(t.Context(), a, receive.Outcome{State: receive.Free}); !errors.Is(err, receive.ErrLeaseLost) {
		t.Errorf("the old run freed the new one's claim: %v", err)
	}
	if f := mustClaim(t, s, "evt_1"); f.State != receive.Held || f.Claim != nil {
		t.Errorf("%v", f.State)
	}
}

// Slow is worse than down: the call must end with its budget, and what was asked may have happened.
func TestStore_redisSlow(t *testing.T) {
	server := redistest.Start(t)
	for name, spoil := range map[string]func(*redistest.Line){
		"answers are late":    func(line *redistest.Line) { line.Spoil(10*time.Second, false) },
		"answers do not come": func(line *redistest.Line) { line.Spoil(0, true) },
	} {
		t.Run(name, func(t *testing.T) {
			line := server.NewLine()
			// As go-redis is by default: the context does not end a read.
			s := redisstore.New(client(t, line.Socket(), func(o *redis.Options) { o.ReadTimeout = 10 * time.Second }))
			mustClaim(t, s, "warm for "+name)
			spoil(line)
			token := receive.NewToken()
			began := time.Now()
			if f, err := claim(t, s, name, token); !errors.Is(err, context.DeadlineExceeded) || f.Claim != nil {
				t.Errorf("%+v, %v", f, err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a budget of 250 ms took %v", took)
			}
			line.Spoil(0, false)
			line.Cut()
			// The claim was applied. Its own run finds that out by asking again; another must wait.
			other := redisstore.New(client(t, server.Socket(), nil))
			if f := mustClaim(t, other, name); f.State != receive.Held || f.Claim != nil {
				t.Errorf("another run: %v, %v", f.State, f.Claim)
			}
			if f, err := claim(t, other, name, token); err != nil || f.Claim == nil || f.Claim.Run != 1 {
				t.Errorf("the same run: %+v, %v", f, err)
			}
		})
	}
}

// A replica, after a failover that the client has not noticed, refuses to be written.
func TestStore_redisReadOnly(t *testing.T) {
	primary, replica := redistest.Start(t), redistest.Start(t, "--replicaof", "127.0.0.1", "1")
	_ = primary
	s := redisstore.New(client(t, replica.Socket(), nil))
	if f, err := claim(t, s, "evt_1", receive.NewToken()); err == nil || !strings.Contains(err.Error(), "READONLY") || f.Claim != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

// A Redis that is full says so; it does not grant what it cannot remember.
func TestStore_redisFull(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
	rdb := client(t, server.Socket(), nil)
	s := redisstore.New(rdb)
	for _, size := range []int{100 << 10, 1 << 10, 1} {
		for i := 0; rdb.Set(t.Context(), fmt.Sprint("junk", size, i), strings.Repeat("x", size), 0).Err() == nil; i++ {
		}
	}
	if f, err := claim(t, s, "evt_1", receive.NewToken()); err == nil || f.Claim != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestCheck_saysWhetherClaimsAreEvicted(t *testing.T) {
	server := redistest.Start(t)
	rdb := client(t, server.Socket(), nil)
	s := redisstore.New(rdb)
	for policy, want := range map[string]receive.Rule{"noeviction": "", "volatile-ttl": receive.Evicts, "allkeys-lru": receive.Evicts} {
		if err := rdb.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		problems, err := s.Check(t.Context())
		if err != nil || len(problems) > 1 || (len(problems) == 0) != (want == "") || len(problems) == 1 && problems[0].Rule != want {
			t.Errorf("%s: %v, %v", policy, problems, err)
		}
	}
	managed := redistest.Start(t, "--rename-command", "CONFIG", "")
	problems, err := redisstore.New(client(t, managed.Socket(), nil)).Check(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Rule != receive.Unchecked || problems[0].Harm != receive.Told {
		t.Errorf("where CONFIG is forbidden: %v, %v", problems, err)
	}
	managed.Kill()
	if _, err := redisstore.New(client(t, managed.Socket(), nil)).Check(t.Context()); err == nil {
		t.Error("a dead Redis was looked at")
	}
}
