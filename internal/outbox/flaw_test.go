package outbox

import (
	"testing"
	"time"
)

func TestEndpoint_judgesWhatItsOwnValuesShow(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(*Endpoint)
		met   []Flaw
		want  string
	}{
		"nothing":                     {func(*Endpoint) {}, nil, ""},
		"a time-out of a moment":      {func(e *Endpoint) { e.Timeout = time.Microsecond }, nil, string(FlawTimeout)},
		"a time-out without end":      {func(e *Endpoint) { e.Timeout = time.Hour }, nil, string(FlawTimeout)},
		"schemes that cannot be read": {func(e *Endpoint) { e.Schemes = nil }, nil, string(FlawSigning)},
		"a filter of another version": {func(e *Endpoint) { e.Filter = `{"a":{"$like":1}}` }, nil, string(FlawFilter)},
		"no secret":                   {func(e *Endpoint) { e.Secrets = nil }, nil, string(FlawNoSecret)},
		"secrets that did not open":   {func(e *Endpoint) { e.Secrets = nil }, []Flaw{FlawSecrets}, string(FlawSecrets)},
		"a password in the URL":       {func(e *Endpoint) { e.URL = "https://a:b@example.com" }, nil, string(FlawURL)},
		"half of the types":           {func(e *Endpoint) { e.EventTypes = []string{"a.b", ""} }, nil, string(FlawEventTypes)},
		"found twice, told once":      {func(e *Endpoint) { e.Retry.MaxAttempts = -1 }, []Flaw{FlawRetry}, string(FlawRetry)},
		"two, in the order of flaws":  {func(e *Endpoint) { e.URL = "" }, []Flaw{FlawMetadata}, string(FlawURL) + " " + string(FlawMetadata)},
		"deleted: nobody cares":       {func(e *Endpoint) { e.Secrets, e.DeletedAt = nil, time.Unix(1, 0) }, nil, ""},
		"a fault of before is gone":   {func(e *Endpoint) { e.Fault = "something" }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := Endpoint{URL: "https://example.com/in", EventTypes: []string{"*"}, Timeout: MinTimeout, Secrets: []Secret{{Value: "whsec_"}}, Schemes: []string{SchemeStandard}}
			row.spoil(&e)
			e.Judge(row.met...)
			if e.Fault != row.want {
				t.Errorf("fault %q, want %q", e.Fault, row.want)
			}
			if e.Has(FlawEventTypes) && !e.Matches("x.y") {
				t.Error("it is not asked about an event it may want")
			}
		})
	}
}
