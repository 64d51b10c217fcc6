package outboxtest

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var sessions = topic{"sessions", []promise{
	{"a session comes back as it was made", sessionKept},
	{"a code is exchanged once, and names the session to whoever comes later", sessionTakenOnce},
	{"of many who exchange a code at once one gets the session", sessionRace},
	{"the same exchange again changes nothing", sessionTakenAgain},
	{"a code is good until its end, the session until its own", sessionEnds},
	{"a revoked session is over at once, and so is a revoked link", sessionRevoked},
	{"revoking all of a tenant's counts those that had not ended", sessionsRevoked},
	{"no tenant sees or ends another's sessions", sessionIsolation},
	{"a deleted tenant's sessions are gone, also for its successor", sessionOfDeleted},
	{"a list is read page by page", sessionPages},
	{"sessions and the record are forgotten when they are old enough, and not before", accessForgotten},
}}

func digestOf(s string) outbox.Digest { return sha256.Sum256([]byte(s)) }

// offer stores a session of an hour whose link is good for a minute, with the code as its name.
func (w *world) offer(tenant outbox.Tenant, code string) outbox.Session {
	w.Helper()
	s := outbox.Session{
		ID:            outbox.NewSessionID(w.now),
		Tenant:        tenant.TenantRef,
		TenantKey:     tenant.Key,
		Permissions:   []outbox.Permission{outbox.PermissionView, outbox.PermissionReplay},
		CreatedBy:     "a key",
		CreatedAt:     w.now,
		LinkExpiresAt: w.now.Add(time.Minute),
		ExpiresAt:     w.now.Add(time.Hour),
	}
	w.must(w.store.CreateSession(w.ctx, s, digestOf(code)))
	return s
}

// exchange trades the code in a code, and fails unless it does, or does not, give the session away.
func (w *world) exchange(code, token string, want bool) outbox.Session {
	w.Helper()
	s, taken, err := w.store.TakeSession(w.ctx, digestOf(code), digestOf(token), w.now)
	w.must(err)
	if taken != want {
		w.Fatalf("the code %q gave the session away: %v", code, taken)
	}
	return s
}

// holds fails unless the token is, or is not, that of an open session.
func (w *world) holds(token string, want bool) {
	w.Helper()
	_, err := w.store.SessionByToken(w.ctx, digestOf(token), w.now)
	if want && err != nil || !want && !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("the token %q: %v, want one: %v", token, err, want)
	}
}

func sessionKept(w *world) {
	acme := w.tenant("acme")
	for _, s := range []outbox.Session{
		{
			ID: outbox.NewSessionID(w.now), Tenant: acme.TenantRef, TenantKey: "acme",
			Permissions: []outbox.Permission{outbox.PermissionView, outbox.PermissionSecrets},
			User:        outbox.SessionUser{ID: "u_1", Name: "Zoë", Email: "zoe@example.com"},
			Path:        "/deliveries?state=dead", ReturnURL: "https://app.example.com/settings",
			Theme:     map[string]string{"mode": "dark", "accent": "#0a7f5a"},
			CreatedBy: "backend", CreatedAt: w.now, LinkExpiresAt: w.now.Add(time.Minute), ExpiresAt: w.now.Add(time.Hour),
		},
		{
			ID: outbox.NewSessionID(w.now), Permissions: []outbox.Permission{outbox.PermissionView, outbox.PermissionAdmin},
			CreatedBy: "operator", CreatedAt: w.now, LinkExpiresAt: w.now.Add(time.Minute), ExpiresAt: w.now.Add(time.Hour),
		},
	} {
		code := s.ID.String()
		w.must(w.store.CreateSession(w.ctx, s, digestOf(code)))
		w.must(w.store.CreateSession(w.ctx, s, digestOf(code))) // its first commit was not answered
		found, err := w.store.SessionByCode(w.ctx, digestOf(code))
		w.must(err)
		w.equal("the session", found, s)
		list, err := w.store.Sessions(w.ctx, s.Tenant, outbox.SessionID{}, outbox.Page{Limit: 10})
		w.must(err)
		w.equal("the list", list, []outbox.Session{s})
		s.UsedAt = w.now
		w.equal("once taken", w.exchange(code, "token of "+code, true), s)
		found, err = w.store.SessionByToken(w.ctx, digestOf("token of "+code), w.now)
		w.must(err)
		w.equal("by its token", found, s)
	}
}

func sessionTakenOnce(w *world) {
	acme := w.tenant("acme")
	made := w.offer(acme, "code")
	if _, _, err := w.store.TakeSession(w.ctx, digestOf("another code"), digestOf("token"), w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("a code that was never given: %v", err)
	}
	first := w.exchange("code", "token", true)
	w.now = w.now.Add(time.Second)
	later := w.exchange("code", "token of somebody else", false)
	w.equal("the session it was used for", later, first)
	if later.ID != made.ID || later.UsedAt.IsZero() {
		w.Fatalf("who comes later is told of %+v", later)
	}
	w.holds("token", true)
	w.holds("token of somebody else", false)
	w.holds("code", false) // the one is not the other
}

func sessionRace(w *world) {
	acme := w.tenant("acme")
	w.offer(acme, "code")
	const people = 12
	var group sync.WaitGroup
	taken := make([]bool, people)
	errs := make([]error, people)
	for i := range people {
		group.Go(func() {
			_, taken[i], errs[i] = w.store.TakeSession(w.ctx, digestOf("code"), digestOf(string(rune('a'+i))), w.now)
		})
	}
	group.Wait()
	w.must(errors.Join(errs...))
	winners := 0
	for i := range people {
		w.holds(string(rune('a'+i)), taken[i])
		if taken[i] {
			winners++
		}
	}
	if winners != 1 {
		w.Errorf("%d have the session, want 1", winners)
	}
}

func sessionTakenAgain(w *world) {
	acme := w.tenant("acme")
	w.offer(acme, "code")
	first := w.exchange("code", "token", true)
	w.now = w.now.Add(time.Second)
	w.equal("the session", w.exchange("code", "token", true), first)
}

func sessionEnds(w *world) {
	acme := w.tenant("acme")
	w.offer(acme, "late")
	w.offer(acme, "in time")
	w.now = w.now.Add(time.Minute - time.Microsecond)
	w.exchange("in time", "token", true)
	w.now = w.now.Add(time.Microsecond)
	if s := w.exchange("late", "another", false); s.State(w.now) != outbox.SessionExpired {
		w.Fatalf("state %s", s.State(w.now))
	}
	w.holds("another", false)
	w.now = w.now.Add(time.Hour - time.Minute - time.Microsecond)
	w.holds("token", true)
	w.now = w.now.Add(time.Microsecond)
	w.holds("token", false)
}

func sessionRevoked(w *world) {
	acme := w.tenant("acme")
	used, unused := w.offer(acme, "used"), w.offer(acme, "unused")
	w.exchange("used", "token", true)
	for _, s := range []outbox.Session{used, unused} {
		w.must(w.store.RevokeSession(w.ctx, acme.TenantRef, s.ID, w.now))
	}
	w.holds("token", false)
	if s := w.exchange("unused", "another", false); s.State(w.now) != outbox.SessionRevoked {
		w.Fatalf("state %s", s.State(w.now))
	}
	at := w.now
	w.now = w.now.Add(time.Second)
	w.must(w.store.RevokeSession(w.ctx, acme.TenantRef, used.ID, w.now))
	list, err := w.store.Sessions(w.ctx, acme.TenantRef, outbox.SessionID{}, outbox.Page{Limit: 10})
	w.must(err)
	if len(list) != 2 || !list[0].RevokedAt.Equal(at) || !list[1].RevokedAt.Equal(at) {
		w.Fatalf("the list: %+v", list)
	}
	if err := w.store.RevokeSession(w.ctx, acme.TenantRef, outbox.NewSessionID(w.now), w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("one that never was: %v", err)
	}
}

func sessionsRevoked(w *world) {
	acme, other := w.neighbours("acme")
	w.offer(acme, "old")
	w.now = w.now.Add(time.Hour)
	w.offer(acme, "one")
	w.offer(acme, "two")
	w.offer(other, "theirs")
	w.exchange("one", "token", true)
	w.exchange("theirs", "their token", true)
	for _, want := range []int{2, 0} {
		n, err := w.store.RevokeSessions(w.ctx, acme.TenantRef, w.now)
		w.must(err)
		if n != want {
			w.Fatalf("%d ended, want %d", n, want)
		}
	}
	w.holds("token", false)
	w.exchange("two", "another", false)
	w.holds("their token", true)
}

func sessionIsolation(w *world) {
	acme, other := w.neighbours("acme")
	s := w.offer(acme, "code")
	w.exchange("code", "token", true)
	for _, stranger := range []outbox.TenantRef{other.TenantRef, {}} {
		if err := w.store.RevokeSession(w.ctx, stranger, s.ID, w.now); !errors.Is(err, outbox.ErrNotFound) {
			w.Fatalf("tenant %d ends another's session: %v", stranger.ID, err)
		}
		_, err := w.store.RevokeSessions(w.ctx, stranger, w.now)
		w.must(err)
		list, err := w.store.Sessions(w.ctx, stranger, outbox.SessionID{}, outbox.Page{Limit: 10})
		w.must(err)
		if len(list) != 0 {
			w.Fatalf("tenant %d sees %v", stranger.ID, list)
		}
	}
	w.holds("token", true)
}

func sessionOfDeleted(w *world) {
	acme := w.tenant("acme")
	w.offer(acme, "code")
	w.offer(acme, "unused")
	w.exchange("code", "token", true)
	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.holds("token", false)
	successor := w.tenant("acme")
	w.holds("token", false)
	if _, _, err := w.store.TakeSession(w.ctx, digestOf("unused"), digestOf("another"), w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("its link: %v", err)
	}
	if _, err := w.store.SessionByCode(w.ctx, digestOf("unused")); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("its link, looked at: %v", err)
	}
	list, err := w.store.Sessions(w.ctx, successor.TenantRef, outbox.SessionID{}, outbox.Page{Limit: 10})
	w.must(err)
	if len(list) != 0 {
		w.Fatalf("the successor sees %v", list)
	}
}

func sessionPages(w *world) {
	acme := w.tenant("acme")
	var made []string
	for _, code := range []string{"a", "b", "c", "d", "e"} {
		made = append(made, w.offer(acme, code).ID.String())
		w.now = w.now.Add(time.Millisecond)
	}
	for _, ascending := range []bool{true, false} {
		var read []string
		var after outbox.SessionID
		for {
			list, err := w.store.Sessions(w.ctx, acme.TenantRef, after, outbox.Page{Limit: 2, Ascending: ascending})
			w.must(err)
			for _, s := range list {
				read, after = append(read, s.ID.String()), s.ID
			}
			if len(list) < 2 {
				break
			}
		}
		want := made
		if !ascending {
			want = []string{made[4], made[3], made[2], made[1], made[0]}
		}
		w.equal("the pages", read, want)
	}
}

func accessForgotten(w *world) {
	acme := w.tenant("acme")
	s := w.offer(acme, "code")
	w.must(w.store.By(w.author("act")).Note(w.ctx))
	made := w.now
	retention := 30 * 24 * time.Hour
	for _, row := range []struct {
		at                time.Time
		sessions, entries int
	}{
		{s.ExpiresAt.Add(retention), 1, 1},
		{s.ExpiresAt.Add(retention + time.Second), 0, 1},
		{made.Add(outbox.AuditAge), 0, 1},
		{made.Add(outbox.AuditAge + time.Second), 0, 0},
	} {
		w.must(w.store.Maintain(w.ctx, outbox.Maintenance{Now: row.at, Retention: retention, IdempotencyRetention: retention}))
		list, err := w.store.Sessions(w.ctx, acme.TenantRef, outbox.SessionID{}, outbox.Page{Limit: 10})
		w.must(err)
		if entries := len(w.record(outbox.AuditQuery{})); len(list) != row.sessions || entries != row.entries {
			w.Fatalf("%v later: %d sessions and %d entries, want %d and %d", row.at.Sub(made), len(list), entries, row.sessions, row.entries)
		}
	}
}
