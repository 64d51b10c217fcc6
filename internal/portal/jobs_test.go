package portal

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

func TestJobs_everyKindHasItsListAndItsPage(t *testing.T) {
	s := newSite(t)
	s.furnish()
	s.signIn()
	for _, path := range []string{"/replays", "/cancellations", "/erasures"} {
		if page := s.page(path); !strings.Contains(page, `class="empty"`) || strings.Contains(page, "<table") {
			t.Errorf("%s shows jobs where there are none", path)
		}
	}
	const whole = `"from":"2020-01-01T00:00:00Z","to":"2100-01-01T00:00:00Z"`
	replay := s.call("POST", "/v1/tenants/acme/replays", `{`+whole+`}`)["id"].(string)
	cancellation := s.call("POST", "/v1/tenants/acme/cancellations", `{`+whole+`,"event_types":["order.*"],"reason":"wrong <b>prices</b>"}`)["id"].(string)
	erasure := s.call("POST", "/v1/tenants/acme/erasures", `{"metadata":{"person":"<i>7</i>"},"reason":"asked for"}`)["id"].(string)

	for path, wants := range map[string][]string{
		"/replays":                       {"/replays/" + replay, "Failed, all endpoints", "acme", "Running"},
		"/cancellations":                 {"/cancellations/" + cancellation, ">order.*", "acme"},
		"/erasures":                      {"/erasures/" + erasure, "person = &lt;i&gt;7&lt;/i&gt;", "acme"},
		"/cancellations/" + cancellation: {"Cancellation of 0 deliveries", "wrong &lt;b&gt;prices&lt;/b&gt;", "/cancellations/" + cancellation + "/cancel"},
		"/erasures/" + erasure:           {"Erasure of 0 events", "asked for", "Erased"},
	} {
		page := s.page(path)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
	if resp, _ := s.visit("GET", "/replays/"+replay, nil); resp.Header.Get("Location") != "/portal/acme/recover/"+replay {
		t.Errorf("a replay leads to %q", resp.Header.Get("Location"))
	}
	if resp, _ := s.visit("GET", "/search?q="+erasure, nil); resp.Header.Get("Location") != "/erasures/"+erasure {
		t.Errorf("an erasure's id leads to %q", resp.Header.Get("Location"))
	}
	if resp, _ := s.visit("GET", "/erasures/"+cancellation, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a cancellation among the erasures: %d, want 404", resp.StatusCode)
	}

	resp, page := s.visit("POST", "/cancellations/"+cancellation+"/cancel", url.Values{"idempotency_key": {"one"}})
	if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), "/cancellations/"+cancellation) {
		t.Fatalf("stopping a cancellation: %d to %q\n%s", resp.StatusCode, resp.Header.Get("Location"), page)
	}
}

func TestJobChip(t *testing.T) {
	for _, c := range []struct {
		job  client.Job
		want string
	}{
		{client.Job{State: "running"}, "Running"},
		{client.Job{State: "running", Stopping: true}, "Stopping"},
		{client.Job{State: "cancelled"}, "Stopped"},
		{client.Job{State: "failed"}, "Failed"},
		{client.Job{State: "done"}, "Done"},
	} {
		if got := jobChip(&c.job).Word; got != c.want {
			t.Errorf("%+v: %q, want %q", c.job, got, c.want)
		}
	}
}
