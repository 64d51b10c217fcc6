package sqlite

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// A server started with the wrong key cannot sign, and says so; it must not also lose what the
// right key would open.
func TestStore_anotherKeyLosesNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	open := func(key byte) *Store {
		t.Helper()
		keys, err := keyring.New(bytes.Repeat([]byte{key}, keyring.KeySize))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Path: path, Keyring: keys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	right := open(1)
	tenant := newTenant(t, right)
	before, _, err := right.PutEndpoint(t.Context(), tenant, outbox.EndpointRef{}, now, func(e *outbox.Endpoint, _ bool) error {
		e.URL, e.State, e.Timeout = "https://example.com/in", outbox.EndpointActive, time.Second
		e.Headers = map[string]string{"X-Token": "t"}
		e.Secrets = []outbox.Secret{{Value: "whsec_new", CreatedAt: now}, {Value: "whsec_old", CreatedAt: now, ExpiresAt: now.Add(time.Hour)}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	edited, err := open(2).EditEndpoint(t.Context(), tenant, outbox.EndpointRef{ID: before.ID}, now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		e.Description = "edited"
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if edited.Fault == "" || edited.Secrets != nil || edited.Headers != nil {
		t.Errorf("with another key: fault %q, secrets %v", edited.Fault, edited.Secrets)
	}
	after, err := right.Endpoint(t.Context(), tenant, outbox.EndpointRef{ID: before.ID})
	if err != nil {
		t.Fatal(err)
	}
	before.Description = "edited"
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(- before, + after):\n%s", diff)
	}
}
