package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const acmeReplays, acmeCancellations = "/v1/tenants/acme/replays", "/v1/tenants/acme/cancellations"

// runJob does an owner's work for a job: what was asked for, to its end.
func (f *fixture) runJob(row outbox.OutboxRow) {
	f.t.Helper()
	job, err := f.store.TakeJob(f.t.Context(), f.owner, row)
	must(f.t, err)
	now := f.clock.Now()
	for job.State == outbox.JobRunning && !job.Scanned && job.Filter.State != outbox.ReplayMissing {
		step, err := f.store.StepJob(f.t.Context(), f.owner, *job, 100, 0, now)
		must(f.t, err)
		job = &step.Job
	}
	for job.State == outbox.JobStopping {
		step, err := f.store.RecallJob(f.t.Context(), f.owner, *job, nil, 100, now)
		must(f.t, err)
		job = &step.Job
	}
}

// span is from and to around everything that happens now.
func span(f *fixture) string {
	now := f.clock.Now()
	return fmt.Sprintf(`"from":%q,"to":%q`, now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339))
}

// figures are a job's, as the answer shows them.
func (a *reply) figures() string {
	a.t.Helper()
	return fmt.Sprint(a.get("state"), " ", a.get("matched"), a.get("done"), a.get("delivered"), a.get("failed"), a.get("skipped"))
}

func (a *reply) wantFigures(want string) *reply {
	a.t.Helper()
	if got := a.figures(); got != want {
		a.t.Errorf("%s: %s, want %s: %s", a.what, got, want, a.body)
	}
	return a
}

func TestReplays_figures(t *testing.T) { onBoth(t, replays_figures) }

func replays_figures(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	var dead []outbox.Delivery
	for range 3 {
		d := f.delivered("a.b")
		f.finish(d, 500, outbox.DeadExhausted, false)
		dead = append(dead, d)
	}
	f.finish(f.delivered("a.b"), 200, "", false)
	f.tick()

	dry := f.call("POST", acmeReplays, `{`+span(f)+`,"dry_run":true}`).want(200).wantFigures("dry_run 3 0 0 0 0")
	if _, has := dry.json()["id"]; has {
		t.Errorf("a dry run has an id: %s", dry.body)
	}
	f.call("POST", acmeReplays, `{`+span(f)+`,"state":"all","dry_run":true}`).want(200).wantFigures("dry_run 4 0 0 0 0")
	f.call("GET", acmeReplays, nil).want(200)
	if rows := f.walk(acmeReplays, "id"); len(rows) != 0 {
		t.Errorf("dry runs left %v", rows)
	}

	made := f.call("POST", acmeReplays, `{`+span(f)+`,"event_types":["a.*"]}`).want(202).wantFigures("running 3 0 0 0 0")
	id := made.text("id")
	if want := acmeReplays + "/" + id; made.header.Get("Location") != want {
		t.Errorf("Location %q", made.header.Get("Location"))
	}
	if made.text("type") != "replay" || made.text("tenant") != "acme" || made.text("created_by") == "" || made.get("finished_at") != nil || made.text("filter", "state") != "dead" {
		t.Errorf("%s", made.body)
	}
	f.call("GET", acmeReplays+"/"+id, nil).want(200).wantFigures("running 3 0 0 0 0")
	f.route()
	for i, d := range dead {
		again, err := f.store.FetchDue(t.Context(), []outbox.FetchRequest{{Shard: d.Shard, Endpoint: d.Endpoint, Lane: outbox.LaneReplay, Limit: 10}}, f.clock.Now(), 1<<20)
		must(t, err)
		if len(again[0].Rows) != 3-i {
			t.Fatalf("%d wait, want %d", len(again[0].Rows), 3-i)
		}
		if i == 2 {
			break
		}
		status, reason := 200, outbox.DeadReason("")
		if i == 1 {
			status, reason = 500, outbox.DeadExhausted
		}
		f.finish(again[0].Rows[0].Delivery, status, reason, false)
	}
	job, err := f.store.Job(t.Context(), outbox.TenantRef{}, replayJobs.types, mustJob(t, id))
	must(t, err)
	_, err = f.store.StepJob(t.Context(), f.owner, job, 0, 0, f.clock.Now())
	must(t, err)
	half := f.call("GET", acmeReplays+"/"+id, nil).want(200).wantFigures("running 3 2 1 1 0")
	if half.get("eta") == nil {
		t.Errorf("no eta: %s", half.body)
	}
	f.call("GET", "/v1/replays/"+id, nil).want(200).wantFigures("running 3 2 1 1 0")
	if diff := cmp.Diff([]string{id}, f.walk("/v1/replays?tenant=acme", "id")); diff != "" {
		t.Error(diff)
	}

	stopping := f.call("POST", acmeReplays+"/"+id+"/cancel", nil).want(202)
	if stopping.get("stopping") != true || stopping.text("state") != "running" {
		t.Errorf("%s", stopping.body)
	}
	f.route()
	stopped := f.call("GET", acmeReplays+"/"+id, nil).want(200).wantFigures("cancelled 3 2 1 1 0")
	if stopped.get("finished_at") == nil || stopped.get("eta") != nil {
		t.Errorf("%s", stopped.body)
	}
	f.call("POST", acmeReplays+"/"+id+"/cancel", nil).want(200).wantFigures("cancelled 3 2 1 1 0")
	// The one that was not sent is dead as it was, the other dead again.
	if rows := f.walk("/v1/tenants/acme/deliveries?state=dead", "id"); len(rows) != 2 {
		t.Errorf("dead: %v", rows)
	}
	for _, list := range []string{"/v1/replays", "/v1/cancellations"} {
		f.call("GET", list+"?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
	}
	f.call("GET", "/v1/cancellations/can_"+id[4:], nil).wantProblem(404, CodeNotFound)
	f.call("GET", acmeCancellations+"/can_"+id[4:], nil).wantProblem(404, CodeNotFound)
}

func mustJob(t *testing.T, id string) outbox.JobID {
	t.Helper()
	parsed, err := replayJobs.parse(id)
	must(t, err)
	return parsed
}

// What a replay would pass over, its bytes or its endpoint being gone, is told before it is asked for.
func TestReplays_goneOnesAreToldBefore(t *testing.T) { onBoth(t, replays_gone) }

func replays_gone(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	for i, result := range []int{500, 500, 500, 200, 200} {
		d := f.delivered("a.b")
		if result == 200 {
			f.finish(d, result, "", false)
		} else {
			f.finish(d, result, outbox.DeadExhausted, false)
		}
		if i < 2 || i == 3 {
			f.call("DELETE", "/v1/tenants/acme/events/"+d.Event.String()+"/payload", nil)
			if a := f.call("GET", "/v1/tenants/acme/events/"+d.Event.String()+"/payload", nil); a.status != 410 {
				t.Fatalf("the payload is there: %s", a.body)
			}
		}
	}
	f.tick()
	for state, want := range map[string]string{"dead": "3 0 0 0 2", "delivered": "2 0 0 0 1", "all": "5 0 0 0 3", "cancelled": "0 0 0 0 0"} {
		f.call("POST", acmeReplays, `{`+span(f)+`,"state":"`+state+`","dry_run":true}`).want(200).wantFigures("dry_run " + want)
	}
	id := f.call("POST", acmeReplays, `{`+span(f)+`,"state":"all"}`).want(202).text("id")
	f.route()
	f.call("GET", acmeReplays+"/"+id, nil).want(200).wantFigures("running 5 3 0 0 3")
}

// The bulk form of "a retry of what was delivered already is accepted without a word".
func TestReplays_chosenOnesThatAreNotDeadAreTold(t *testing.T) { onBoth(t, replays_chosen) }

func replays_chosen(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	dead, delivered, pending := f.delivered("a.b"), f.delivered("a.b"), f.delivered("a.b")
	f.finish(dead, 500, outbox.DeadExhausted, false)
	f.finish(delivered, 200, "", false)
	f.tick()
	chosen := fmt.Sprintf(`{"delivery_ids":[%q,%q,%q,%q]`, dead.ID, delivered.ID, pending.ID, dead.ID)
	f.call("POST", acmeReplays, chosen+`,"dry_run":true}`).want(200).wantFigures("dry_run 3 0 0 0 2")
	id := f.call("POST", acmeReplays, chosen+`}`).want(202).wantFigures("running 3 0 0 0 0").text("id")
	f.route()
	a := f.call("GET", acmeReplays+"/"+id, nil).want(200).wantFigures("running 3 2 0 0 2")
	if diff := cmp.Diff([]any{dead.ID.String(), delivered.ID.String(), pending.ID.String()}, a.get("filter", "delivery_ids")); diff != "" {
		t.Error(diff)
	}
	if f.call("GET", acmeReplays, nil).get("data", 0, "filter", "delivery_ids") != nil {
		t.Error("the list shows ids")
	}
	unknown := "dlv_" + outbox.NewEventID(f.clock.Now()).String()[4:]
	f.call("POST", acmeReplays, fmt.Sprintf(`{"delivery_ids":[%q,%q]}`, dead.ID, unknown)).wantProblem(422, CodeInvalidField)
	f.tenant("other")
	refused := f.call("POST", "/v1/tenants/other/replays", fmt.Sprintf(`{"delivery_ids":[%q]}`, dead.ID)).wantProblem(422, CodeInvalidField)
	if path := refused.Errors[0].Path; path != "delivery_ids[0]" {
		t.Errorf("path %q", path)
	}
}

func TestReplays_missing(t *testing.T) { onBoth(t, replays_missing) }

func replays_missing(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.publish("acme", "a.b", "1")
	f.publish("acme", "c.d", "1")
	f.route()
	early := f.endpoint("acme", `"event_types":["a.b"]`)
	f.delivered("a.b")
	f.endpoint("acme", `"state":"draft"`)
	late := f.endpoint("acme", "")
	f.tick()
	count := func(fields string, want int) {
		t.Helper()
		f.call("POST", acmeReplays, `{`+span(f)+`,"state":"missing","dry_run":true`+fields+`}`).want(200).wantFigures(fmt.Sprintf("dry_run %d 0 0 0 0", want))
	}
	count("", 4) // the first of the early one, all three of the late one, none of the draft
	count(`,"endpoint_id":"`+early+`"`, 1)
	count(`,"endpoint_id":"`+late+`"`, 3)
	count(`,"endpoint_id":"`+late+`","event_types":["c.d"]`, 1)
}

func TestReplays_idempotent(t *testing.T) { onBoth(t, replays_idempotent) }

func replays_idempotent(t *testing.T, f *fixture) {
	f.tenant("acme")
	body := `{` + span(f) + `}`
	first := f.call("POST", acmeReplays, body, "Idempotency-Key", "k").want(202)
	again := f.call("POST", acmeReplays, body, "Idempotency-Key", "k").want(202)
	if again.header.Get("Idempotent-Replayed") != "true" || again.text("id") != first.text("id") {
		t.Errorf("%s after %s", again.body, first.body)
	}
	f.call("POST", acmeReplays, `{`+span(f)+`,"state":"all"}`, "Idempotency-Key", "k").wantProblem(422, CodeIdempotencyMismatch)
	// The process died before it could keep the answer: the claim is gone, the job is not.
	acme, err := f.store.Tenant(t.Context(), "acme")
	must(t, err)
	must(t, f.store.DropIdempotent(t.Context(), acme.TenantRef, "k"))
	if third := f.call("POST", acmeReplays, body, "Idempotency-Key", "k").want(202); third.text("id") != first.text("id") {
		t.Errorf("%s after %s", third.body, first.body)
	}
	must(t, f.store.DropIdempotent(t.Context(), acme.TenantRef, "k"))
	f.call("POST", acmeReplays, `{`+span(f)+`,"state":"all"}`, "Idempotency-Key", "k").wantProblem(422, CodeIdempotencyMismatch)
	if rows := f.walk(acmeReplays, "id"); len(rows) != 1 {
		t.Errorf("jobs: %v", rows)
	}
}

func TestReplays_refused(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	unknown := outbox.NewEndpointID(f.clock.Now()).String()
	many := strings.Repeat(`"`+outbox.NewDeliveryID(outbox.EventID{}, outbox.EndpointID{}).String()+`",`, outbox.MaxJobIDs)
	for body, code := range map[string]Code{
		`{}`:                              CodeMissingField,
		`{"from":"2026-01-01T00:00:00Z"}`: CodeMissingField,
		`{"from":"yesterday","to":"2026-01-01T00:00:00Z"}`:                           CodeInvalidField,
		`{"from":null,"to":"2026-01-01T00:00:00Z"}`:                                  CodeMissingField,
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`:                CodeInvalidField,
		`{"from":"2026-01-01T00:00:00Z","to":"2025-01-01T00:00:00Z"}`:                CodeInvalidField,
		`{"from":7,"to":"2026-01-01T00:00:00Z"}`:                                     CodeInvalidField,
		`{` + span(f) + `,"state":"pending"}`:                                        CodeInvalidField,
		`{` + span(f) + `,"endpoint_id":"ep_x"}`:                                     CodeInvalidField,
		`{` + span(f) + `,"endpoint_id":"` + unknown + `"}`:                          CodeInvalidField,
		`{` + span(f) + `,"event_types":["a b"]}`:                                    CodeInvalidField,
		`{` + span(f) + `,"event_types":"a.b"}`:                                      CodeInvalidField,
		`{` + span(f) + `,"rate_per_second":0}`:                                      CodeInvalidField,
		`{` + span(f) + `,"rate_per_second":"fast"}`:                                 CodeInvalidField,
		`{` + span(f) + `,"dry_run":"yes"}`:                                          CodeInvalidField,
		`{` + span(f) + `,"delivery_ids":["` + unknown + `"]}`:                       CodeInvalidField,
		`{` + span(f) + `,"delivery_ids":[]}`:                                        CodeInvalidField,
		`{"delivery_ids":[` + many + `"dlv_x"]}`:                                     CodeInvalidField,
		`{"delivery_ids":[` + strings.TrimSuffix(many, ",") + `],"state":"missing"}`: CodeInvalidField,
		`{` + span(f) + `,"reason":"x"}`:                                             CodeUnknownField,
	} {
		f.call("POST", acmeReplays, body).wantProblem(422, code)
	}
	for body, code := range map[string]Code{
		`{` + span(f) + `}`:                                             CodeMissingField,
		`{` + span(f) + `,"reason":""}`:                                 CodeInvalidField,
		`{` + span(f) + `,"reason":null}`:                               CodeInvalidField,
		`{"reason":"x"}`:                                                CodeMissingField,
		`{"reason":"x","event_ids":["` + unknown + `"]}`:                CodeInvalidField,
		`{` + span(f) + `,"reason":"x","state":"dead"}`:                 CodeUnknownField,
		`{` + span(f) + `,"reason":"x","rate_per_second":1}`:            CodeUnknownField,
		`{` + span(f) + `,"reason":"` + strings.Repeat("x", 501) + `"}`: CodeInvalidField,
	} {
		f.call("POST", acmeCancellations, body).wantProblem(422, code)
	}
	if rows := append(f.walk(acmeReplays, "id"), f.walk(acmeCancellations, "id")...); len(rows) != 0 {
		t.Errorf("refused, and yet there: %v", rows)
	}
}

func TestReplays_tooMuchIsRefused(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.broken.countJob = func() (int, bool, error) { return 0, true, nil }
	for _, fields := range []string{``, `,"dry_run":true`} {
		f.call("POST", acmeReplays, `{`+span(f)+fields+`}`).wantProblem(422, CodeJobTooLarge)
	}
	if rows := f.walk(acmeReplays, "id"); len(rows) != 0 {
		t.Errorf("refused, and yet there: %v", rows)
	}
}

func TestCancellations_figures(t *testing.T) { onBoth(t, cancellations_figures) }

func cancellations_figures(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	one, two := f.delivered("a.b"), f.delivered("a.b")
	f.finish(f.delivered("a.b"), 500, outbox.DeadExhausted, false)
	f.tick()
	f.call("POST", acmeCancellations, `{`+span(f)+`,"reason":"A bad deploy.","dry_run":true}`).want(200).wantFigures("dry_run 2 0 0 0 0")
	id := f.call("POST", acmeCancellations, fmt.Sprintf(`{"event_ids":[%q],"reason":"A bad deploy."}`, one.Event)).want(202).wantFigures("running 1 0 0 0 0").text("id")
	if !strings.HasPrefix(id, "can_") {
		t.Errorf("id %s", id)
	}
	f.route()
	done := f.call("GET", acmeCancellations+"/"+id, nil).want(200).wantFigures("done 1 1 0 0 0")
	if done.text("reason") != "A bad deploy." || done.text("type") != "cancellation" {
		t.Errorf("%s", done.body)
	}
	d := f.call("GET", "/v1/tenants/acme/deliveries/"+one.ID.String(), nil).want(200)
	if d.text("state") != "cancelled" || d.text("dead", "reason") != "cancelled" || d.text("dead", "message") != "A bad deploy." {
		t.Errorf("%s", d.body)
	}
	if state := f.call("GET", "/v1/tenants/acme/deliveries/"+two.ID.String(), nil).text("state"); state != "pending" {
		t.Errorf("the other is %s", state)
	}
	f.call("POST", acmeCancellations+"/"+id+"/cancel", `{}`).want(200).wantFigures("done 1 1 0 0 0")
	if diff := cmp.Diff([]string{id}, f.walk("/v1/cancellations", "id")); diff != "" {
		t.Error(diff)
	}
	f.call("GET", acmeReplays+"/rpl_"+id[4:], nil).wantProblem(404, CodeNotFound)
}

func TestTenant_deletionIsAJob(t *testing.T) { onBoth(t, tenant_deletionIsAJob) }

func tenant_deletionIsAJob(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	f.delivered("a.b")
	f.delivered("a.b")
	job := f.call("DELETE", "/v1/tenants/acme", nil).want(202).wantFigures("running 2 0 0 0 0")
	id := job.text("id")
	if job.text("type") != "delete_tenant" || job.text("tenant") != "acme" {
		t.Errorf("%s", job.body)
	}
	f.route()
	done := f.call("GET", "/v1/cancellations/"+id, nil).want(200).wantFigures("done 2 2 0 0 0")
	if done.text("tenant") != "acme" || done.get("finished_at") == nil {
		t.Errorf("%s", done.body)
	}
	// A tenant made under the key again does not see what the old one had.
	f.tenant("acme")
	f.call("GET", acmeCancellations+"/"+id, nil).wantProblem(404, CodeNotFound)
}
