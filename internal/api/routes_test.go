package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/access"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// TestMain demands, once everything ran, that every status in the document was really seen.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && wholeRun() {
		code = seen.complain()
	}
	os.Exit(code)
}

// wholeRun reports whether no test was left out.
func wholeRun() bool {
	for _, arg := range os.Args {
		for _, partial := range []string{"-test.run", "-test.skip", "-test.list", "-test.fuzz", "-test.bench="} {
			if strings.HasPrefix(arg, partial) && !strings.HasSuffix(arg, "=") {
				return false
			}
		}
	}
	return true
}

func (s *sightings) complain() int {
	code := 0
	for pattern, r := range s.all {
		for _, status := range r.statuses() {
			if !s.seen[pattern][status] {
				fmt.Printf("%s: status %d is documented and no test has seen it\n", pattern, status)
				code = 1
			}
		}
	}
	return code
}

// example is a request that a route answers with success, and what an isolation test needs.
type example struct {
	body string
	// fresh puts the route's object of its own into the path, for requests that use it up.
	fresh func(f *fixture) (ep string)
}

// examples has a row for every route with a key: a new route without one fails.
var examples = map[string]example{
	"putTenant": {body: `{}`}, "patchTenant": {body: `{}`}, "getTenant": {}, "listTenants": {},
	"deleteTenant":   {},
	"prune":          {body: `{"before":"2026-01-01T00:00:00Z"}`},
	"createEndpoint": {body: `{"url":"https://hooks.example.com/"}`},
	"putEndpoint":    {body: `{"description":"x"}`},
	"listEndpoints":  {}, "getEndpoint": {},
	"patchEndpoint":        {body: `{"description":"x"}`},
	"deleteEndpoint":       {fresh: func(f *fixture) string { return f.endpoint("acme", "") }},
	"probeEndpoint":        {body: `{}`},
	"rotateSecret":         {body: `{"overlap_seconds":0}`},
	"getDispatch":          {},
	"putDispatch":          {body: `{"state":"running"}`},
	"publishEvent":         {body: `{"type":"a.b","payload":1}`},
	"publishBatch":         {body: `{"events":[{"type":"a.b","payload":1}]}`},
	"publishAcrossTenants": {body: `{"events":[{"tenant":"acme","type":"a.b","payload":1}]}`},
	"listEvents":           {}, "getEvent": {}, "getPayload": {}, "listEventDeliveries": {},
	"listDeliveries": {}, "countDeliveries": {}, "getDelivery": {}, "listAttempts": {},
	"replayDelivery": {body: `{}`}, "replayAnyDelivery": {body: `{}`},
	"listAllEndpoints": {}, "lookUpEndpoint": {}, "lookUpEvent": {}, "listAllDeliveries": {},
	"lookUpDelivery": {}, "lookUpAttempts": {}, "lookUpAttempt": {}, "whoAmI": {}, "getVersion": {},
	"search": {}, "getOverview": {}, "listNodes": {}, "getStats": {}, "getTenantStats": {}, "listAllEvents": {}, "tail": {}, "listen": {},
	"testEndpoint":       {body: `{}`},
	"createReplay":       {body: `{"from":"2026-01-01T00:00:00Z","to":"2036-01-01T00:00:00Z"}`},
	"createErasure":      {body: `{"metadata":{"person":"p_1"}}`},
	"createCancellation": {body: `{"from":"2026-01-01T00:00:00Z","to":"2036-01-01T00:00:00Z","reason":"x"}`},
	"listReplays":        {}, "getReplay": {}, "cancelReplay": {body: `{}`}, "listAllReplays": {}, "lookUpReplay": {},
	"listCancellations": {}, "getCancellation": {}, "cancelCancellation": {body: `{}`}, "listAllCancellations": {}, "lookUpCancellation": {},
	"listErasures": {}, "getErasure": {}, "cancelErasure": {body: `{}`}, "listAllErasures": {}, "lookUpErasure": {},
	"createPortalSession": {body: `{}`}, "listPortalSessions": {}, "revokePortalSession": {}, "revokePortalSessions": {},
	"listAudit": {}, "listTenantAudit": {},
	"putSource": {body: `{"state":"active"}`}, "getSource": {}, "listSources": {}, "listRequests": {}, "getRequest": {}, "releaseRequest": {body: `{}`}, "deleteSource": {},
	"addSourceSecret": {body: `{"secret":"whsec_0123456789abcdef0123456789abcdef"}`}, "deleteSourceSecrets": {}, "deleteSourceSecret": {},
	"createKey": {body: `{"name":"k","scopes":["read"]}`}, "listKeys": {}, "deleteKey": {},
	"putSignatureScheme": {body: houseScheme}, "getSignatureScheme": {}, "listSignatureSchemes": {},
	"deleteSignatureScheme": {fresh: func(f *fixture) string { f.call("PUT", "/v1/signature-schemes/house", houseScheme); return "" }},
	"putEventType":          {body: `{"description":"x"}`}, "getEventType": {}, "listEventTypes": {},
	"deleteEventType":       {fresh: func(f *fixture) string { f.call("PUT", "/v1/event-types/a.b", `{}`); return "" }},
	"checkEndpoint":         {body: `{"url":"https://hooks.example.com/"}`},
	"previewOfDelivery":     {body: `{}`},
	"previewDelivery":       {body: `{"type":"a.b","payload":1}`},
	"erasePayload":          {},
	"createOperatorSession": {body: `{}`}, "listOperatorSessions": {}, "revokeOperatorSession": {}, "revokeOperatorSessions": {},
}

const houseScheme = `{"algorithm":"hmac-sha256","secret_encoding":"utf8","signed_content":"{timestamp}.{body}","encoding":"hex","headers":{"X-House":"{signature}"}}`

// scene is acme with one of everything, and other, who must see none of it.
type scene struct {
	*fixture
	d                outbox.Delivery
	attempt          string
	portal, operator string           // sessions
	sources          int              // made so far
	arrived          outbox.InboundID // at the last of them
	jobs             map[string]string
}

func newScene(t *testing.T, change ...func(*Config)) *scene {
	return furnish(newFixture(t, change...))
}

func furnish(f *fixture) *scene {
	f.tenant("acme")
	f.tenant("other")
	f.endpoint("acme", "")
	s := &scene{fixture: f, d: f.delivered("a.b")}
	f.finish(s.d, 404, outbox.DeadPermanent, false)
	f.call("PUT", "/v1/signature-schemes/house", houseScheme).want(201)
	f.call("PUT", "/v1/event-types/a.b", `{}`).want(201)
	s.attempt = f.call("GET", "/v1/deliveries/"+s.d.ID.String()+"/attempts", nil).text("data", 0, "id")
	s.jobs = map[string]string{}
	for _, path := range []string{"replay", "cancellation", "erasure"} {
		s.jobs[path] = f.call("POST", "/v1/tenants/acme/"+path+"s", examples["create"+strings.ToUpper(path[:1])+path[1:]].body).want(202).text("id")
	}
	s.portal = f.call("POST", "/v1/tenants/acme/portal-sessions", nil).want(201).text("id")
	s.operator = f.call("POST", "/v1/operator-sessions", nil).want(201).text("id")
	return s
}

// address fills a route's path for a tenant; ids are acme's.
func (s *scene) address(r *route, tenant string) string {
	ep := s.d.Endpoint.String()
	if fresh := examples[r.name].fresh; fresh != nil {
		ep = fresh(s.fixture)
	}
	source := s.source(r)
	return strings.NewReplacer("{tenant}", tenant, "{ep}", ep, "{evt}", s.d.Event.String(), "{dlv}", s.d.ID.String(), "{att}", s.attempt, "{ps}", s.session(r), "{rpl}", s.jobs["replay"], "{can}", s.jobs["cancellation"], "{era}", s.jobs["erasure"], "{key}", s.keyFor(r), "{source}", source, "{in}", s.arrived.String(), "{secret}", "sec_0", "{name}", "house", "{type}", "a.b").Replace(r.path)
}

// source makes a source for the routes of one.
func (s *scene) source(r *route) string {
	if !strings.Contains(r.path, "{source}") {
		return ""
	}
	s.sources++
	name := fmt.Sprintf("src%d", s.sources)
	acme, err := s.store.Tenant(s.t.Context(), "acme")
	must(s.t, err)
	src, _, err := s.store.PutSource(s.t.Context(), name, s.clock.Now(), func(src *outbox.Source, _ bool) error {
		src.Provider, src.Tenant, src.TenantKey = "stripe", acme.TenantRef, "acme"
		src.Secrets = []outbox.SourceSecret{{ID: "sec_0", Value: "whsec_a_first_secret_of_ours"}}
		return nil
	})
	must(s.t, err)
	s.arrived = outbox.NewInboundID(s.clock.Now())
	must(s.t, s.store.RecordRequests(s.t.Context(), []outbox.InboundRequest{{
		ID: s.arrived, Source: src.ID, Shard: outbox.SourceShard(name), Outcome: outbox.InboundQuarantined,
		Reason: outbox.QuarantinedSchema, Topic: "a.b", Body: []byte(`{}`), Bytes: 2, ReleaseKey: [32]byte{1, byte(s.sources), byte(s.sources >> 8)},
	}}))
	return name
}

// keyFor makes a key for a route that deletes one.
func (s *scene) keyFor(r *route) string {
	if r.name != "deleteKey" {
		return ""
	}
	k := outbox.Key{ID: outbox.NewKeyID(s.clock.Now()), Name: "k", Scopes: []Scope{ScopeRead}, CreatedAt: s.clock.Now()}
	must(s.t, s.store.CreateKey(s.t.Context(), k, access.DigestOf(k.ID.String())))
	return k.ID.String()
}

func (s *scene) session(r *route) string {
	if r.operator {
		return s.operator
	}
	return s.portal
}

// takes reports whether the route has the parameter.
func (r *route) takes(name string) bool {
	return slices.ContainsFunc(r.query, func(p param) bool { return p.name == name })
}

func (r *route) sample() any {
	if body := examples[r.name].body; body != "" {
		return body
	}
	return nil
}

// keyed are the routes that need a key. Those that delete come last.
func keyed() []*route {
	var out []*route
	for _, r := range routes() {
		if r.scope != "" {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *route) int {
		last := []string{"erasePayload", "deleteEndpoint", "deleteTenant"}
		return slices.Index(last, a.name) - slices.Index(last, b.name)
	})
	return out
}

func TestRoutes_everyOneHasAnExample(t *testing.T) {
	names := map[string]bool{}
	for _, r := range keyed() {
		if _, has := examples[r.name]; !has {
			t.Errorf("%s %s has no row in examples", r.method, r.path)
		}
		if names[r.name] {
			t.Errorf("two routes are named %s", r.name)
		}
		names[r.name] = true
	}
	s := newScene(t)
	for _, r := range keyed() {
		if a := s.call(r.method, s.address(r, "acme"), r.sample()); a.status/100 != 2 {
			t.Errorf("%s: %d %s", r.name, a.status, a.body)
		}
	}
}

func TestRoutes_withoutAKey(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		for _, authorization := range []string{"-", "Bearer wrong", "Bearer", "Basic " + operatorKey, operatorKey, "Bearer " + operatorKey + "x"} {
			a := s.call(r.method, s.address(r, "acme"), r.sample(), "Authorization", authorization)
			a.wantProblem(401, CodeUnauthorized)
			if a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", r.name)
			}
		}
	}
	s.call("GET", "/v1/nothing", nil, "Authorization", "-").wantProblem(401, CodeUnauthorized)
	s.call("GET", "/v1/nothing", nil).wantProblem(404, CodeNotFound)
	s.call("GET", "/v1/whoami", nil, "Authorization", "bearer  "+operatorKey).want(200)
	for _, r := range routes() {
		if r.scope == "" && r.name != "fetchPayload" && !r.gateway { // those have keys of their own
			s.call(r.method, s.address(r, "acme"), nil, "Authorization", "-").want(200)
		}
	}
}

func TestRoutes_scopes(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		address := s.address(r, "acme")
		if r.scope == anyScope {
			s.call(r.method, address, r.sample(), "Authorization", "Bearer "+noScopeKey).want(200)
			continue
		}
		s.call(r.method, address, r.sample(), "Authorization", "Bearer "+noScopeKey).wantProblem(403, CodeForbidden)
		if r.scope != ScopeRead {
			s.call(r.method, address, r.sample(), "Authorization", "Bearer "+readKey).wantProblem(403, CodeForbidden)
		} else if a := s.call(r.method, address, r.sample(), "Authorization", "Bearer "+readKey); a.status/100 != 2 {
			t.Errorf("%s with the scope read: %d %s", r.name, a.status, a.body)
		}
	}
	if m := s.call("GET", "/v1/whoami", nil, "Authorization", "Bearer "+acmeKey).json(); m["tenant"] != "acme" || m["operator"] != false {
		t.Errorf("whoami %v", m)
	}
}

// A key of one tenant, and a path of one tenant, never reach another's objects: the answer is
// that for an unknown id, byte for byte except for the request id.
func TestRoutes_tenantsAreIsolated(t *testing.T) {
	s := newScene(t)
	unknown := outbox.NewEventID(s.clock.Now())
	plain := func(a *reply) string {
		var m map[string]any
		a.into(&m)
		delete(m, "request_id")
		text, _ := json.Marshal(m)
		return fmt.Sprint(a.status, a.header.Get("Retry-After"), string(text))
	}
	asAcme := []string{"Authorization", "Bearer " + acmeKey}
	for _, r := range keyed() {
		if r.operator {
			s.call(r.method, s.address(r, "acme"), r.sample(), asAcme...).wantProblem(403, CodeForbidden)
			continue
		}
		if !strings.Contains(r.path, "{tenant}") {
			continue
		}
		// Another tenant's path with acme's key, against a tenant that does not exist.
		foreign := s.call(r.method, s.address(r, "other"), r.sample(), asAcme...)
		nobody := s.call(r.method, s.address(r, "nobody"), r.sample(), asAcme...)
		if foreign.status != 404 || plain(foreign) != plain(nobody) {
			t.Errorf("%s: another tenant: %s; an unknown one: %s", r.name, foreign.body, nobody.body)
		}
		// acme's object in other's path, against an id that does not exist.
		if !strings.Contains(r.path, "}/") || strings.Count(r.path, "{") < 2 {
			continue
		}
		foreign = s.call(r.method, s.address(r, "other"), r.sample())
		absent := strings.NewReplacer("{tenant}", "other", "{ep}", "ep_"+unknown.String()[4:], "{evt}", unknown.String(), "{dlv}", "dlv_"+unknown.String()[4:], "{ps}", "ps_"+unknown.String()[4:], "{rpl}", "rpl_"+unknown.String()[4:], "{can}", "can_"+unknown.String()[4:], "{key}", "key_"+unknown.String()[4:]).Replace(r.path)
		missing := s.call(r.method, absent, r.sample())
		if foreign.status != 404 || plain(foreign) != plain(missing) {
			t.Errorf("%s: a foreign id: %s; an unknown one: %s", r.name, foreign.body, missing.body)
		}
		// What is no id at all is no different.
		garbled := strings.NewReplacer("{tenant}", "other", "{ep}", "no!id", "{evt}", "no!id", "{dlv}", "no!id", "{ps}", "no!id", "{rpl}", "no!id", "{can}", "no!id").Replace(r.path)
		if a := s.call(r.method, garbled, r.sample()); plain(a) != plain(missing) && r.name != "putEndpoint" {
			t.Errorf("%s: no id: %s", r.name, a.body)
		}
	}
	// Ids of other things in filters find nothing either.
	for _, query := range []string{"event_id=" + s.d.Event.String(), "endpoint_id=" + s.d.Endpoint.String()} {
		if rows := s.walk("/v1/tenants/other/deliveries?"+query, "id"); len(rows) != 0 {
			t.Errorf("other sees %v by %s", rows, query)
		}
	}
	for _, r := range keyed() {
		if !strings.HasPrefix(r.path, "/v1/tenants") && strings.Contains(r.path, "{") && r.method != "PUT" {
			address := strings.NewReplacer("{ep}", "ep_"+unknown.String()[4:], "{evt}", unknown.String(), "{dlv}", "dlv_"+unknown.String()[4:], "{att}", "att_"+unknown.String()[4:], "{ps}", "ps_"+unknown.String()[4:], "{rpl}", "rpl_"+unknown.String()[4:], "{can}", "can_"+unknown.String()[4:], "{key}", "key_"+unknown.String()[4:], "{source}", "nobody", "{in}", "in_"+unknown.String()[4:], "{secret}", "sec_nothing", "{name}", "nobody", "{type}", "nothing").Replace(r.path)
			s.call(r.method, address, r.sample()).wantProblem(404, CodeNotFound)
			garbled := strings.NewReplacer("{ep}", "x", "{evt}", "x", "{dlv}", "x", "{att}", "x", "{ps}", "x", "{rpl}", "x", "{can}", "x", "{key}", "x", "{source}", "!", "{in}", "!", "{secret}", "!", "{name}", "x", "{type}", "x").Replace(r.path)
			s.call(r.method, garbled, r.sample()).wantProblem(404, CodeNotFound)
		}
	}
}

func TestRoutes_bodies(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		address := s.address(r, "acme")
		if r.body == nil {
			continue
		}
		body := r.sample().(string)
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json; charset=latin1"} {
			s.call(r.method, address, body, "Content-Type", kind).wantProblem(415, CodeUnsupportedMedia)
		}
		s.call(r.method, address, body, "Content-Encoding", "gzip").wantProblem(415, CodeUnsupportedMedia)
		for _, kind := range []string{"Application/JSON; Charset=\"UTF-8\"", "-"} {
			if a := s.call(r.method, address, body, "Content-Type", kind); a.status/100 != 2 {
				t.Errorf("%s as %s: %d", r.name, kind, a.status)
			}
		}
		huge := strings.Repeat(" ", outbox.MaxBatchBytes+1)
		s.call(r.method, address, huge).wantProblem(413, CodePayloadTooLarge)
		s.call(r.method, address, endless{}).wantProblem(413, CodePayloadTooLarge)
		s.call(r.method, address, failingReader{errors.New("reset")}).wantProblem(400, CodeBadRequest)
		s.call(r.method, address, failingReader{os.ErrDeadlineExceeded}).wantProblem(408, CodeTimeout)
		s.call(r.method, address, `{"no_such_field":1,`+strings.TrimPrefix(body, "{")).want(422)
		if strings.HasSuffix(body, "{}") {
			s.call(r.method, address, `{"no_such_field":1}`).want(422)
		}
		s.call(r.method, address, "\xff").want(422)
	}
}

// endless is a body without a length and without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

func TestRoutes_queries(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		address := s.address(r, "acme")
		s.call(r.method, address+"?nonsense=1", r.sample()).wantProblem(422, CodeUnknownField)
		if !r.takes("explain") {
			s.call(r.method, address+"?explain=true", r.sample()).wantProblem(422, CodeUnknownField)
		}
		s.call(r.method, address+"?a=%zz", r.sample()).wantProblem(400, CodeBadRequest)
		if r.takes("cursor") {
			s.call(r.method, address+"?cursor=nonsense", nil).wantProblem(400, CodeCursorInvalid)
		}
		if a := s.call(r.method, address+"?nonsense=1", r.sample(), "Prefer", "handling=lenient"); a.status/100 != 2 {
			t.Errorf("%s: %d %s", r.name, a.status, a.body)
		}
	}
}

func TestRoutes_otherMethods(t *testing.T) {
	s := newScene(t)
	byPath := map[string][]string{}
	for _, r := range routes() {
		byPath[r.path] = append(byPath[r.path], r.method)
	}
	for _, r := range routes() {
		address := s.address(r, "acme")
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			if seen.routed(method, address) || r.gateway { // nobody serves it here
				continue
			}
			a := s.call(method, address, nil)
			a.wantProblem(405, CodeMethodNotAllowed)
			for _, allowed := range byPath[r.path] {
				if !strings.Contains(a.header.Get("Allow"), allowed) {
					t.Errorf("%s %s: Allow %q lacks %s", method, r.path, a.header.Get("Allow"), allowed)
				}
			}
		}
		if slices.Contains(byPath[r.path], "GET") {
			if a := s.call("HEAD", address, nil); a.status != 200 && r.name != "fetchPayload" && !r.gateway {
				t.Errorf("HEAD %s: %d", r.path, a.status)
			}
		}
	}
}

func TestRoutes_storeTrouble(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		if r.name == "whoAmI" || r.name == "getVersion" || r.name == "tail" || r.name == "listen" {
			continue // they ask no database, or answer before they do
		}
		s.broken.fail(nil)
		address := s.address(r, "acme")
		for fault, want := range map[outbox.Fault]int{outbox.FaultRetry: 503, outbox.FaultBroken: 500} {
			s.broken.fail(&outbox.WriteError{Fault: fault, Err: errors.New("SECRET of the database")})
			a := s.call(r.method, address, r.sample())
			a.want(want)
			if want == 503 && a.header.Get("Retry-After") == "" {
				t.Errorf("%s: 503 without Retry-After", r.name)
			}
			if bytes.Contains(a.body, []byte("SECRET")) {
				t.Errorf("%s: the database's text is in the answer %s", r.name, a.body)
			}
		}
	}
	s.broken.fail(errors.New("away"))
	s.call("GET", "/healthz", nil).want(200)
	if a := s.call("GET", "/readyz", nil).want(503); a.text("status") != "not_ready" || a.header.Get("Retry-After") == "" {
		t.Errorf("readyz %s", a.body)
	}
}

// A defect costs its request alone, and the log names it.
func TestRoutes_aPanicIsA500(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.Keys = panicking{} })
	for _, name := range []string{"/v1/whoami", "/v1/version"} {
		a := f.call("GET", name, nil, "Authorization", "Bearer other")
		p := a.wantProblem(500, CodeInternal)
		if !strings.Contains(f.log.String(), p.RequestID) || !strings.Contains(f.log.String(), "a defect") {
			t.Errorf("the log does not have it: %s", f.log)
		}
		if bytes.Contains(a.body, []byte("a defect")) {
			t.Errorf("answer %s", a.body)
		}
	}
	f = newFixture(t, func(cfg *Config) { cfg.Keys = awayKeys{} })
	f.call("GET", "/v1/whoami", nil, "Authorization", "Bearer other").wantProblem(503, CodeUnavailable)
	f.call("GET", "/v1/version", nil, "Authorization", "Bearer other").wantProblem(503, CodeUnavailable)
}

func TestRoutes_withoutTrailingSlashOrDots(t *testing.T) {
	f := newFixture(t)
	f.call("GET", "/v1/tenants/", nil).wantProblem(404, CodeNotFound)
	f.call("GET", "/", nil).wantProblem(404, CodeNotFound)
	f.call("POST", "/healthz", nil).wantProblem(405, CodeMethodNotAllowed)
	f.tenant("acme")
	for _, path := range []string{"//", "/v1//tenants", "//v1/tenants", "/v1/tenants/../tenants", "/v1/./tenants", "/v1/tenants/.", "/v1/tenants/acme/..", "/v1/tenants//acme", "/healthz//", "/v1/tenants/acme//events"} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			f.call(method, path, nil).wantProblem(404, CodeNotFound)
		}
	}
	f.call("GET", "/v1//tenants", nil, "Authorization", "-").wantProblem(401, CodeUnauthorized)
}
