package thin_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/thin"
)

// A key that was replaced still opens the addresses it signed, as long as it is among the old ones.
func TestLinks_anOldKeyStillVerifies(t *testing.T) {
	base := func() *url.URL { return &url.URL{Scheme: "https", Host: "example.com", Path: "/hooks"} }
	now := time.Now()
	event := thin.Event{ID: outbox.NewEventID(now), Tenant: 7, Type: "a.b", CreatedAt: now}
	old, current := []byte("the key before"), []byte("the key now")
	var sent struct{ URL string }
	if err := json.Unmarshal(thin.New(base, [][]byte{old}).Body(event, now.Add(time.Hour)), &sent); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(sent.URL)
	if err != nil || u.Path != "/hooks"+thin.Path+event.ID.String() {
		t.Fatalf("%s: %v", sent.URL, err)
	}
	tenant, until, ok := thin.New(base, [][]byte{current, old}).Verify(event.ID, u.Query())
	if !ok || tenant != 7 || until.Unix() != now.Add(time.Hour).Unix() {
		t.Errorf("tenant %d, until %v, %t", tenant, until, ok)
	}
	if _, _, ok := thin.New(base, [][]byte{current}).Verify(event.ID, u.Query()); ok {
		t.Error("a key that is gone still verifies")
	}
}
