package outboxtest

import (
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var apiKeys = topic{"keys of the API", []promise{
	{"a key is found by its digest, as it was made", keyKept},
	{"an expired key is unknown, and listed", keyExpires},
	{"a deleted key is unknown at once", keyDeleted},
	{"the sessions made with a key end with it, and no others", keyTakesItsSessions},
	{"a deleted tenant's keys are unknown, also for its successor", keyOfDeletedTenant},
	{"the last use is kept, and never goes back", keyTouched},
	{"only a valid operator's key for everything counts as one", keyOfOperator},
	{"keys are listed page by page, and by tenant", keyPages},
}}

// key stores a key that reads, with its name as its secret.
func (w *world) key(tenant outbox.Tenant, name string, change ...func(*outbox.Key)) outbox.Key {
	w.Helper()
	k := outbox.Key{
		ID: outbox.NewKeyID(w.now), Name: name, Prefix: "wbk_12345678", Tenant: tenant.TenantRef, TenantKey: tenant.Key,
		Scopes: []outbox.Scope{outbox.ScopeRead}, CreatedBy: "bootstrap", CreatedAt: w.now,
	}
	for _, c := range change {
		c(&k)
	}
	w.must(w.store.CreateKey(w.ctx, k, digestOf(name)))
	return k
}

// knows fails unless the store does, or does not, know the key of this name.
func (w *world) knows(name string, want bool) outbox.Key {
	w.Helper()
	k, err := w.store.KeyByDigest(w.ctx, digestOf(name), w.now)
	if want && err != nil || !want && !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("the key %q: %v, want one: %v", name, err, want)
	}
	return k
}

func keyKept(w *world) {
	acme := w.tenant("acme")
	for _, k := range []outbox.Key{
		w.key(acme, "theirs", func(k *outbox.Key) {
			k.Scopes, k.ExpiresAt = []outbox.Scope{outbox.ScopeRead, outbox.ScopePublish}, w.now.Add(time.Hour)
		}),
		w.key(outbox.Tenant{}, "ours"),
	} {
		w.must(w.store.CreateKey(w.ctx, k, digestOf(k.Name))) // its first commit was not answered
		w.equal("the key", w.knows(k.Name, true), k)
	}
	w.knows("nobody's", false)
}

func keyExpires(w *world) {
	w.key(outbox.Tenant{}, "k", func(k *outbox.Key) { k.ExpiresAt = w.now.Add(time.Second) })
	w.knows("k", true)
	w.now = w.now.Add(time.Second)
	w.knows("k", false)
	list, err := w.store.Keys(w.ctx, outbox.KeyQuery{}, outbox.Page{Limit: 10})
	w.must(err)
	if len(list) != 1 {
		w.Fatalf("the list has %d keys", len(list))
	}
}

func keyTakesItsSessions(w *world) {
	k := w.key(outbox.Tenant{}, "k", func(k *outbox.Key) { k.Prefix = "wbk_aaaaaaaa" })
	open := func(prefix string, token outbox.Digest) {
		s := outbox.Session{
			ID: outbox.NewSessionID(w.now), Permissions: []outbox.Permission{outbox.PermissionView}, CreatedBy: "k", KeyPrefix: prefix,
			CreatedAt: w.now, LinkExpiresAt: w.now.Add(time.Minute), ExpiresAt: w.now.Add(time.Hour),
		}
		code := digestOf("code of " + prefix)
		w.must(w.store.CreateSession(w.ctx, s, code))
		_, taken, err := w.store.TakeSession(w.ctx, code, token, w.now)
		w.must(err)
		w.equal("taken", taken, true)
	}
	its, anothers, bootstrap := digestOf("its"), digestOf("another's"), digestOf("bootstrap's")
	open(k.Prefix, its)
	open("wbk_bbbbbbbb", anothers)
	open("", bootstrap)
	found, err := w.store.SessionByToken(w.ctx, its, w.now)
	w.must(err)
	w.equal("whose key made it", found.KeyPrefix, k.Prefix)

	w.must(w.store.DeleteKey(w.ctx, k.ID, w.now))
	if _, err := w.store.SessionByToken(w.ctx, its, w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("the key's session: %v, want it to have ended", err)
	}
	for _, token := range []outbox.Digest{anothers, bootstrap} {
		if _, err := w.store.SessionByToken(w.ctx, token, w.now); err != nil {
			w.Errorf("another session: %v", err)
		}
	}
}

func keyDeleted(w *world) {
	k := w.key(outbox.Tenant{}, "k")
	w.must(w.store.DeleteKey(w.ctx, k.ID, w.now))
	w.knows("k", false)
	if err := w.store.DeleteKey(w.ctx, k.ID, w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("once more: %v", err)
	}
	w.must(w.store.TouchKey(w.ctx, k.ID, w.now))
	w.knows("k", false)
}

func keyOfDeletedTenant(w *world) {
	acme := w.tenant("acme")
	w.key(acme, "k")
	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.knows("k", false)
	w.tenant("acme")
	w.knows("k", false)
	list, err := w.store.Keys(w.ctx, outbox.KeyQuery{}, outbox.Page{Limit: 10})
	w.must(err)
	if len(list) != 0 {
		w.Fatalf("listed: %v", list)
	}
}

func keyTouched(w *world) {
	k := w.key(outbox.Tenant{}, "k")
	for _, row := range []struct{ used, want time.Duration }{{time.Minute, time.Minute}, {0, time.Minute}, {time.Hour, time.Hour}} {
		w.must(w.store.TouchKey(w.ctx, k.ID, w.now.Add(row.used)))
		if got := w.knows("k", true).LastUsedAt; !got.Equal(w.now.Add(row.want)) {
			w.Fatalf("used at %v, noted as %v", w.now.Add(row.used), got)
		}
	}
}

func keyOfOperator(w *world) {
	has := func(want bool) {
		w.Helper()
		got, err := w.store.HasOperatorKey(w.ctx, w.now)
		w.must(err)
		if got != want {
			w.Fatalf("there is one: %v, want %v", got, want)
		}
	}
	has(false)
	w.key(outbox.Tenant{}, "reads")
	w.key(w.tenant("acme"), "acme's", func(k *outbox.Key) { k.Scopes = []outbox.Scope{outbox.ScopeAdmin} })
	has(false)
	w.key(outbox.Tenant{}, "for a while", func(k *outbox.Key) {
		k.Scopes, k.ExpiresAt = []outbox.Scope{outbox.ScopeRead, outbox.ScopeAdmin}, w.now.Add(time.Second)
	})
	has(true)
	w.now = w.now.Add(time.Second)
	has(false)
}

func keyPages(w *world) {
	acme, other := w.neighbours("acme")
	var all, acmes []string
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		owner := []outbox.Tenant{acme, other, {}}[i%3]
		w.key(owner, name)
		if all = append(all, name); owner.Key == "acme" {
			acmes = append(acmes, name)
		}
		w.now = w.now.Add(time.Millisecond)
	}
	read := func(q outbox.KeyQuery) (names []string) {
		for {
			list, err := w.store.Keys(w.ctx, q, outbox.Page{Limit: 2, Ascending: true})
			w.must(err)
			for _, k := range list {
				names, q.After = append(names, k.Name), k.ID
			}
			if len(list) < 2 {
				return names
			}
		}
	}
	w.equal("everybody's", read(outbox.KeyQuery{}), all)
	w.equal("acme's", read(outbox.KeyQuery{Tenant: acme.TenantRef}), acmes)
	newest, err := w.store.Keys(w.ctx, outbox.KeyQuery{}, outbox.Page{Limit: 1})
	w.must(err)
	if len(newest) != 1 || newest[0].Name != "e" {
		w.Fatalf("the newest: %v", newest)
	}
}
