package outboxtest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var secrets = topic{"secrets", []promise{
	{"secrets come back but are not stored in clear", secretsAreSealed},
	{"a deleted endpoint's secrets and headers are gone", deletedSecrets},
}}

const secretValue = "whsec_c3VpdGUtc2VjcmV0LXN1aXRlLXNlY3JldA=="

// traces are the forms in which a secret could be found in a database's files or rows.
func traces(value string) map[string][]byte {
	key, _ := base64.StdEncoding.DecodeString(value[len("whsec_"):])
	return map[string][]byte{
		"as it is":       []byte(value[len("whsec_"):]),
		"decoded":        key,
		"in hex":         []byte(hex.EncodeToString([]byte(value))),
		"its key in hex": []byte(hex.EncodeToString(key)),
		"base64":         []byte(base64.StdEncoding.EncodeToString([]byte(value))[:40]),
	}
}

func (w *world) dump(must string) []byte {
	w.Helper()
	dump, err := w.backdoor().Dump(w.ctx)
	w.must(err)
	if !bytes.Contains(dump, []byte(must)) {
		w.Fatalf("the dump does not even hold %q; it proves nothing", must)
	}
	return dump
}

func secretsAreSealed(w *world) {
	acme := w.tenant("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) {
		e.Description = "a-visible-description"
		e.Secrets = []outbox.Secret{{Value: secretValue, CreatedAt: w.now}}
	})
	got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID})
	w.must(err)
	w.equal("the secret", got.Secrets, []outbox.Secret{{Value: secretValue, CreatedAt: w.now}})

	dump := w.dump("a-visible-description")
	for how, trace := range traces(secretValue) {
		if bytes.Contains(bytes.ToLower(dump), bytes.ToLower(trace)) {
			w.Errorf("the secret lies in the database %s", how)
		}
	}
}

func deletedSecrets(w *world) {
	door := w.backdoor()
	acme, globex := w.neighbours("acme")
	headers := func(e *outbox.Endpoint) { e.Headers = map[string]string{"X-Token": "token"} }
	one := w.endpointWith(acme, headers)
	w.endpointWith(globex, headers)
	w.endpointWith(globex, headers)
	stored := func(want int) {
		w.Helper()
		n, err := door.Count(w.ctx, `SELECT count(*) FROM {endpoint} WHERE headers IS NOT NULL AND secrets IS NOT NULL`)
		w.must(err)
		w.equal("endpoints with secrets and headers", n, want)
	}
	stored(3)
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: one.ID}, w.now, 1)
	w.must(err)
	stored(2)
	_, err = w.store.DeleteTenant(w.ctx, globex.Key, "Ops", w.now)
	w.must(err)
	stored(0)
}
