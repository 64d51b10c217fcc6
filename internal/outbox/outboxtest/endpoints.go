package outboxtest

import (
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var endpoints = topic{"endpoints", []promise{
	{"everything about an endpoint is kept", endpointComesBack},
	{"an edit that fails leaves everything as it was", failedEndpointEdit},
	{"commands go with the edit or not at all", editCommands},
	{"a deleted endpoint is gone, but its history can be read", deleteEndpoint},
	{"deleting counts what is pending, up to a limit", deleteEndpointCounts},
	{"every change moves the revision of its shard alone", endpointRevisions},
	{"the time of becoming active is the database's", endpointResumed},
	{"a row that cannot be used carries its fault and disturbs nobody", brokenRow},
}}

// fullEndpoint sets every field an edit may set.
func (w *world) fullEndpoint(e *outbox.Endpoint) {
	e.UID = "main:eu.1"
	e.URL = "https://user-hooks.example.com:8443/in?a=1&b=%20"
	e.Description = "Production 'eu' ☂"
	e.Metadata = map[string]string{"team": "billing", "": "empty"}
	e.EventTypes = []string{"payment.*", "invoice.paid", "a_b.*"}
	e.Headers = map[string]string{"X-Token": "abc", "X-Empty": ""}
	e.Secrets = []outbox.Secret{
		{Value: "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3", CreatedAt: w.now},
		{Value: "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk", CreatedAt: w.now.Add(-time.Hour), ExpiresAt: w.now.Add(24 * time.Hour)},
	}
	e.MaxInFlight = 3
	e.RateLimit = &outbox.RateLimit{Count: 50, Per: 1500 * time.Millisecond}
	e.Timeout = 12500 * time.Millisecond
	e.Ordering, e.OnDead = outbox.OrderingStrict, outbox.OnDeadHold
	e.State = outbox.EndpointPaused
	e.StateReason = &outbox.StateReason{Code: "manual", Message: "Paused for a migration.", At: w.now, By: "ann"}
	e.Retry = outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 90 * time.Minute, Window: 72 * time.Hour, MaxAttempts: 12, RetryStatuses: []string{"404", "4xx"}}
	e.DiscardedAt = w.now.Add(-time.Minute)
}

func endpointComesBack(w *world) {
	acme := w.tenant("acme")
	for name, change := range map[string]func(e *outbox.Endpoint){
		"full":                   w.fullEndpoint,
		"plain":                  func(*outbox.Endpoint) {},
		"no statuses is a value": func(e *outbox.Endpoint) { e.Retry.RetryStatuses = []string{} },
		"draft":                  func(e *outbox.Endpoint) { e.State = outbox.EndpointDraft },
		"disabled":               func(e *outbox.Endpoint) { e.State = outbox.EndpointDisabled },
	} {
		got := w.endpointWith(acme, change)
		want := outbox.Endpoint{
			ID:          got.ID,
			Tenant:      acme.TenantRef,
			URL:         "https://hooks.example.com/in",
			EventTypes:  []string{"*"},
			State:       outbox.EndpointActive,
			Ordering:    outbox.OrderingNone,
			Schemes:     []string{outbox.SchemeStandard},
			PayloadMode: outbox.PayloadFull,
			OnDead:      outbox.OnDeadSkip,
			Timeout:     outbox.DefaultTimeout,
			Secrets:     []outbox.Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", CreatedAt: w.now}},
			CreatedAt:   got.CreatedAt,
			UpdatedAt:   got.UpdatedAt,
			ResumedAt:   got.ResumedAt,
		}
		change(&want)
		if got.ID.IsZero() || !got.ID.Time().Equal(w.now.Truncate(time.Millisecond)) {
			w.Errorf("%s: id %s is of %v, want %v", name, got.ID, got.ID.Time(), w.now)
		}
		read, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: got.ID})
		w.must(err)
		var loaded outbox.Endpoint
		for _, e := range w.config().Endpoints {
			if e.ID == got.ID {
				loaded = e
			}
		}
		for where, e := range map[string]outbox.Endpoint{"answer": got, "read": read, "configuration": loaded} {
			w.equal(name+": "+where, e, want)
			if (e.Retry.RetryStatuses == nil) != (want.Retry.RetryStatuses == nil) {
				w.Errorf("%s: %s: statuses %#v, want %#v", name, where, e.Retry.RetryStatuses, want.Retry.RetryStatuses)
			}
		}
	}
}

func failedEndpointEdit(w *world) {
	acme := w.tenant("acme")
	before := w.endpointWith(acme, w.fullEndpoint)
	refusal := errors.New("no")
	revisions := w.revisions()
	_, _, putErr := w.store.PutEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: "new"}, w.now, func(e *outbox.Endpoint, _ bool) error {
		e.UID, e.URL = "new", "https://a.example/"
		return refusal
	})
	_, editErr := w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: before.ID}, w.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		e.URL, e.Secrets, e.State = "https://evil.example/", nil, outbox.EndpointActive
		return []outbox.Command{{Name: outbox.CommandCancelEndpoint}}, refusal
	})
	for what, err := range map[string]error{"put": putErr, "edit": editErr} {
		if !errors.Is(err, refusal) {
			w.Errorf("%s: error %v, want edit's own", what, err)
		}
	}
	got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: before.ID})
	w.must(err)
	w.equal("after a refused edit", got, before)
	w.equal("endpoints after a refused put", w.countEndpoints(acme.TenantRef), 1)
	w.waiting(0)
	w.equal("revisions after refused edits", w.revisions(), revisions)
}

func editCommands(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	commands := []outbox.Command{
		{Name: outbox.CommandCancelEndpoint, Reason: "backlog discarded by 'ann' ☂", Before: w.now},
		{Name: outbox.CommandCancelEndpoint},
	}
	_, err := w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
		return commands, nil
	})
	w.must(err)
	var got []outbox.Command
	for _, row := range w.outbox() {
		got = append(got, row.Command)
		if row.Kind != outbox.OutboxCommand || row.Tenant != acme.ID || row.Endpoint != e.ID || row.Shard != acme.Shard {
			w.Errorf("row %+v", row)
		}
	}
	w.equal("commands", got, commands)
}

func deleteEndpoint(w *world) {
	acme := w.tenant("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) {
		e.UID, e.URL = "main", "https://old.example/in"
	})
	dead := w.planned(e, "a.b")
	w.finish(w.refused(dead))
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: "main"}, w.now, 10)
	w.must(err)
	for _, ref := range []outbox.EndpointRef{{ID: e.ID}, {UID: "main"}} {
		if _, err := w.store.Endpoint(w.ctx, acme.TenantRef, ref); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("still there: %v", err)
		}
		if _, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, ref, w.now, 10); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("deleted twice: %v", err)
		}
	}
	if _, err := w.store.Endpoint(w.ctx, outbox.TenantRef{}, outbox.EndpointRef{ID: e.ID}); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("still there for the operator: %v", err)
	}
	if got := w.config().Endpoints; len(got) != 0 {
		w.Errorf("still in the configuration: %+v", got)
	}
	w.equal("living endpoints", w.countEndpoints(acme.TenantRef), 0)
	view := w.view(dead)
	if view.EndpointURL != "https://old.example/in" || view.EndpointState != "" || view.State != outbox.StateDead {
		w.Errorf("history: url %q, state of the endpoint %q, state %q", view.EndpointURL, view.EndpointState, view.State)
	}
}

func deleteEndpointCounts(w *world) {
	acme := w.tenant("acme")
	e, other := w.endpoint(acme, "*"), w.endpoint(acme, "*")
	for range 5 {
		w.publishOne(acme, "a.b", `{}`)
	}
	w.route()
	for _, c := range []struct {
		endpoint    outbox.Endpoint
		limit, want int
	}{{e, 3, 3}, {other, 5, 5}} {
		n, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: c.endpoint.ID}, w.now, c.limit)
		w.must(err)
		w.equal("pending", n, c.want)
	}
	w.equal("cancelled", len(w.executeCommands()), 10)
	w.verify()
}

func endpointRevisions(w *world) {
	acme := w.tenant("acme")
	var e outbox.Endpoint
	w.moves("put", acme.Shard, func() { e = w.endpoint(acme, "*") })
	w.moves("edit", acme.Shard, func() { w.editEndpoint(e, func(e *outbox.Endpoint) { e.Description = "new" }) })
	w.moves("delete", acme.Shard, func() {
		_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
		w.must(err)
	})
}

func endpointResumed(w *world) {
	acme := w.tenant("acme")
	first := w.endpoint(acme, "*")
	for _, waiting := range []outbox.EndpointState{outbox.EndpointPaused, outbox.EndpointDisabled, outbox.EndpointDraft} {
		tick()
		e := w.editEndpoint(first, func(e *outbox.Endpoint) { e.Description = "changed" })
		w.equal("after an edit that changed no state", e.ResumedAt, first.ResumedAt)
		w.editEndpoint(first, func(e *outbox.Endpoint) { e.State = waiting })
		resumed := tick()
		w.now = w.now.Add(-time.Hour) // the caller's clock does not matter
		first = w.editEndpoint(first, func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
		if got := first.ResumedAt; got.Before(resumed.Truncate(time.Millisecond)) || got.After(time.Now().Add(time.Second)) {
			w.Errorf("%s, then active: resumed at %v, the database's time was after %v", waiting, got, resumed)
		}
	}
	read, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: first.ID})
	w.must(err)
	w.equal("as it is read", read.ResumedAt, first.ResumedAt)
}

func brokenRow(w *world) {
	door := w.backdoor()
	acme, globex := w.neighbours("acme")
	w.endpointWith(acme, func(e *outbox.Endpoint) { e.Description = "broken" })
	healthy := w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	// Each is mended before the next, so that every fault stands alone.
	w.must(door.Exec(w.ctx, `CREATE TABLE mended AS SELECT * FROM {endpoint} WHERE description = 'broken'`))
	for _, row := range []struct {
		damage string
		fault  string
	}{
		{`url = 'not a url'`, string(outbox.FlawURL)},
		{`url = 'http://user:password@example.com/'`, string(outbox.FlawURL)},
		{`url = 'http://[::1'`, string(outbox.FlawURL)},
		{`secrets = {garbage}`, string(outbox.FlawSecrets)},
		{`secrets = NULL`, string(outbox.FlawNoSecret)},
		{`headers = {garbage}`, string(outbox.FlawHeaders)},
		{`event_types = {nothing}`, string(outbox.FlawEventTypes)},
		{`event_types = {odd}`, string(outbox.FlawEventTypes)},
		{`retry = '{"max_attempts": "many"}'`, string(outbox.FlawRetry)},
		{`retry = '{"max_attempts": -1}'`, string(outbox.FlawRetry)},
		{`metadata = '{"a": 1}'`, string(outbox.FlawMetadata)},
		{`state_reason = '[]'`, string(outbox.FlawReason)},
		{`url = '', retry = '{"max_attempts": -1}'`, string(outbox.FlawURL) + " " + string(outbox.FlawRetry)},
	} {
		w.must(door.Exec(w.ctx, `UPDATE {endpoint} SET `+row.damage+` WHERE description = 'broken'`))
		config := w.config()
		if len(config.Endpoints) != 3 || len(config.Tenants) != 2 {
			w.Fatalf("%s: %d endpoints and %d tenants, want 3 and 2", row.damage, len(config.Endpoints), len(config.Tenants))
		}
		for _, e := range config.Endpoints {
			want := ""
			if e.Description == "broken" {
				want = row.fault
			}
			if e.Fault != want {
				w.Errorf("%s: %q has fault %q, want %q", row.damage, e.Description, e.Fault, want)
			}
			if !e.Matches("x.y") {
				w.Errorf("%s: %q is not asked about an event it may want", row.damage, e.Description)
			}
		}
		for _, column := range []string{"url", "secrets", "headers", "event_types", "retry", "metadata", "state_reason"} {
			w.must(door.Exec(w.ctx, `UPDATE {endpoint} SET `+column+` = (SELECT `+column+` FROM mended) WHERE description = 'broken'`))
		}
	}
	got, err := w.store.Endpoints(w.ctx, outbox.EndpointQuery{Tenant: acme.TenantRef}, outbox.Page{Limit: 10})
	w.must(err)
	if !slices.ContainsFunc(got, func(e outbox.Endpoint) bool { return e.ID == healthy.ID }) {
		w.Error("the healthy neighbour is not listed")
	}
}

// countEndpoints counts the tenant's living endpoints.
func (w *world) countEndpoints(tenant outbox.TenantRef) int {
	w.Helper()
	rows, err := w.store.Endpoints(w.ctx, outbox.EndpointQuery{Tenant: tenant}, outbox.Page{Limit: 250})
	w.must(err)
	return len(rows)
}
