package attempt_test

import (
	"net"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Whoever names addresses inside learns nothing about them: one where somebody listens, one where
// nobody does, one that swallows packets and one that is no host are refused alike, before anything
// is sent, so that there is no time to be measured either.
func TestSender_deniedAddressesAreAllAlike(t *testing.T) {
	guard, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.Close)
	b := bench{attempt.New(attempt.Config{Guard: guard, Clock: &outbox.Clock{}, UserAgent: "Waybill/test"}), &outbox.Clock{}, guard}
	open := answers(t, reply(200, "", "inside"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	said := map[string]string{}
	for name, address := range map[string]string{
		"somebody listens": open.Addr().String(),
		"nobody listens":   closed,
		"no answer":        "10.255.255.1:8080",
		"no host":          "192.168.254.254:8080",
	} {
		out := b.send(t, "http://"+address+"/")
		if out.Outcome != outbox.OutcomePermanent || out.Kind != outbox.KindEgressDenied || out.StatusCode != 0 || len(out.ResponseBody) > 0 {
			t.Errorf("%s: %s, %s, %d, %q", name, out.Outcome, out.Kind, out.StatusCode, out.ResponseBody)
		}
		if out.Timing.Connect != 0 || out.Timing.FirstByte != 0 {
			t.Errorf("%s: it was connected to: %+v", name, out.Timing)
		}
		host, _, _ := net.SplitHostPort(address)
		said[strings.NewReplacer(address, "it", host, "it").Replace(out.Message)] = name
	}
	if len(said) != 1 {
		t.Errorf("they can be told apart: %v", said)
	}
	if n := open.connections(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}
