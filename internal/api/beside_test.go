package api

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestPreviewOfDelivery_isSignedNowByTheSecretsOfNow(t *testing.T) {
	run := func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("other")
		made := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/in","secret_headers":{"Authorization":"Bearer CANARY"}}`).want(201)
		const payload = `{ "id":1152921506151679042 }`
		event := f.publish("acme", "a.b", payload)
		d := f.route()[0]
		f.finish(d, 404, outbox.DeadPermanent, false)
		at := acmeDeliveries + "/" + d.ID.String() + "/preview"

		signedBy := func(secret string) {
			t.Helper()
			p := f.call("POST", at, `{}`).want(200)
			stamp := p.text("headers", "webhook-timestamp")
			if seconds, err := strconv.ParseInt(stamp, 10, 64); err != nil || math.Abs(float64(time.Now().Unix()-seconds)) > 120 {
				t.Errorf("signed at %q", stamp)
			}
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			must(t, err)
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", event, stamp, payload)
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); p.text("headers", "webhook-signature") != want {
				t.Errorf("signature %s, want %s", p.text("headers", "webhook-signature"), want)
			}
			body, err := base64.StdEncoding.DecodeString(p.text("body_base64"))
			if err != nil || string(body) != payload || p.text("headers", "webhook-id") != event || p.text("headers", "waybill-attempt") != "2" || p.text("headers", "waybill-sequence") != "1" {
				t.Errorf("%s", p.body)
			}
			if strings.Contains(string(p.body), "CANARY") || p.text("headers", "authorization") != "[secret]" {
				t.Error("a secret header is shown")
			}
		}
		signedBy(made.text("secret"))
		rotated := f.call("POST", acmeEndpoints+"/"+made.text("id")+"/secret/rotate", `{"overlap_seconds":0}`).want(200)
		signedBy(rotated.text("secret"))

		f.call("POST", strings.Replace(at, "acme", "other", 1), `{}`).wantProblem(404, CodeNotFound)
		f.call("POST", at, `{"type":"a.b"}`).wantProblem(422, CodeUnknownField)
		if state := f.call("GET", strings.TrimSuffix(at, "/preview"), nil).text("state"); state != "dead" {
			t.Errorf("looking at it made it %s", state)
		}
		f.call("DELETE", acmeEndpoints+"/"+made.text("id"), nil).want(202)
		f.call("POST", at, `{}`).wantProblem(409, CodeEndpointDeleted)
	}
	onBoth(t, run)
}

func TestDeliveries_after(t *testing.T) {
	run := func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.endpoint("acme", "")
		var all []outbox.Delivery
		for range 5 {
			f.publish("acme", "a.b", "1")
			all = append(all, f.route()...)
		}
		slices.SortFunc(all, func(a, b outbox.Delivery) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		var ids []string
		for i, d := range all {
			ids = append(ids, d.ID.String())
			if i != 2 {
				f.finish(d, 404, outbox.DeadPermanent, false)
			}
		}
		for _, row := range []struct {
			query string
			want  []string
		}{
			{"after=" + ids[2], []string{ids[1], ids[0]}},
			{"after=" + ids[2] + "&order=asc", []string{ids[3], ids[4]}},
			{"after=" + ids[3] + "&state=dead&limit=1", []string{ids[1], ids[0]}},
			{"after=" + ids[4] + "&order=asc&state=dead", nil},
			{"after=" + ids[0], nil},
		} {
			if got := f.walk(acmeDeliveries+"?"+row.query, "id"); strings.Join(got, " ") != strings.Join(row.want, " ") {
				t.Errorf("%s: %v, want %v", row.query, got, row.want)
			}
		}
		f.call("GET", acmeDeliveries+"?after=evt_01m8nr6fzjezsmcdf2aftwjyw0", nil).wantProblem(422, CodeInvalidField)
	}
	onBoth(t, run)
}

func TestStats_ofOneEndpoint(t *testing.T) {
	run := func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("other")
		acme, err := f.store.Tenant(t.Context(), "acme")
		must(t, err)
		one, two := f.endpoint("acme", ""), f.endpoint("acme", "")
		at := f.clock.Now().Add(-time.Hour)
		for ep, n := range map[string]int64{one: 3, two: 50} {
			id, err := outbox.ParseEndpointID(ep)
			must(t, err)
			must(t, f.store.AddTraffic(t.Context(), []outbox.Traffic{{At: at, Tenant: acme.ID, Endpoint: id, Counts: outbox.Counts{Succeeded: n, Transient: 1}}}))
		}
		for _, address := range []string{"/v1/tenants/acme/stats", "/v1/stats", "/v1/stats?tenant=acme"} {
			address += map[bool]string{true: "&", false: "?"}[strings.Contains(address, "?")] + "bucket=1h&endpoint_id="
			var view statsView
			f.call("GET", address+one, nil).want(200).into(&view)
			if view.Totals.Attempts != (attemptsView{Total: 4, Delivered: 3, Transient: 1}) || len(view.Data) < 24 {
				t.Errorf("%s: %+v in %d steps", address, view.Totals.Attempts, len(view.Data))
			}
		}
		f.call("GET", "/v1/tenants/other/stats?endpoint_id="+one, nil).wantProblem(404, CodeNotFound)
		f.call("GET", "/v1/stats?endpoint_id=ep_01m8nr6fzjezsmcdf2aftwjyw0", nil).wantProblem(404, CodeNotFound)
		f.call("GET", "/v1/stats?endpoint_id=x", nil).wantProblem(422, CodeInvalidField)
	}
	onBoth(t, run)
}
