package portal

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

// Whoever reads why something waits must be told whether to do anything.
func TestWaitOf_saysWhetherSomebodyIsNeeded(t *testing.T) {
	v := &Visit{base: &Base{}, Visitor: Visitor{Tenant: "acme"}}
	for name, c := range map[string]struct {
		waiting client.Waiting
		behind  string // the end of the link's address
		says    string
	}{
		"its turn comes by itself":    {client.Waiting{Reason: "backlog"}, "", "you do not have to do anything"},
		"somebody paused it":          {client.Waiting{Reason: "paused"}, "", "once the endpoint is resumed"},
		"one before it is under way":  {client.Waiting{Reason: "order", Behind: &client.Behind{DeliveryID: "dlv_1", State: "pending"}}, "/deliveries/dlv_1", "you do not have to do anything"},
		"one before it holds the key": {client.Waiting{Reason: "order", Behind: &client.Behind{DeliveryID: "dlv_1", State: "dead"}}, "/deliveries/dlv_1", "Replay that one"},
	} {
		note := waitOf(v, client.Delivery{State: "pending", Waiting: &c.waiting})
		if !strings.Contains(note.Text, c.says) || c.says != "you do not have to do anything" && strings.Contains(note.Text, "you do not have") {
			t.Errorf("%s: %q, want %q", name, note.Text, c.says)
		}
		if got := note.Behind; (got == nil) != (c.behind == "") || got != nil && !strings.HasSuffix(got.URL, c.behind) {
			t.Errorf("%s: leads to %v, want %q", name, got, c.behind)
		}
	}
}
