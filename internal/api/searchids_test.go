package api

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestSearch_findsEveryKindOfId(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		s := furnish(f)
		f.tenant("third")
		source := f.call("PUT", "/v1/sources/billing", `{"provider":"stripe","tenant":"acme","secrets":["`+stripeSecret+`"]}`).want(201)
		key := f.call("POST", "/v1/keys", `{"name":"of the search","scopes":["read"],"tenant":"acme"}`).want(201)
		for _, row := range []struct{ q, tenant, kind, id string }{
			{s.jobs["replay"], "acme", "replay", s.jobs["replay"]},
			{s.jobs["cancellation"], "acme", "cancellation", s.jobs["cancellation"]},
			{source.text("id"), "acme", "source", "billing"},
			{"billing", "acme", "source", "billing"},
			{key.text("id"), "acme", "key", key.text("id")},
			{s.operator, "", "session", s.operator},
		} {
			found := f.call("GET", "/v1/search?q="+row.q, nil).want(200)
			if found.text("data", 0, "type") != row.kind || found.text("data", 0, "id") != row.id || found.text("data", 0, "tenant") != row.tenant {
				t.Errorf("%s: %s", row.q, found.body)
			}
			// Nothing of acme's is another's, and keys and sessions are for who may list them.
			if none := f.call("GET", "/v1/search?tenant=third&q="+row.q, nil).want(200); string(none.body) != `{"data":[],"more":false}`+"\n" && string(none.body) != `{"data":[],"more":false}` {
				t.Errorf("%s of another tenant: %s", row.q, none.body)
			}
			looked := f.call("GET", "/v1/search?q="+row.q, nil, "Authorization", "Bearer "+readKey).want(200)
			if hidden := len(looked.get("data").([]any)) == 0; hidden != (row.kind == "key" || row.kind == "session") {
				t.Errorf("%s for who may only read: %s", row.q, looked.body)
			}
		}
		if found := f.call("GET", "/v1/search?tenant=acme&q="+s.portal, nil).want(200); found.text("data", 0, "type") != "session" {
			t.Errorf("a session of the portal: %s", found.body)
		}
		for _, unknown := range []string{"rpl_01m8nr6fzjezsmcdf2aftwjyw0", "can_01m8nr6fzjezsmcdf2aftwjyw0", outbox.NewSourceID(f.clock.Now()).String(), outbox.NewKeyID(f.clock.Now()).String()} {
			if found := f.call("GET", "/v1/search?q="+unknown, nil).want(200); len(found.get("data").([]any)) != 0 {
				t.Errorf("%s: %s", unknown, found.body)
			}
		}
	})
}
