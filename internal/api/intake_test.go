package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// What intake accepts is what encoding/json reads, and the payload is its raw message; what it
// calls malformed, encoding/json or utf8 refuses too.
func FuzzIntake(f *testing.F) {
	for _, body := range []string{
		`{"type":"a.b","payload":{"n": 1.0}}`,
		`{"payload":[1,2, 3] ,"type":"a","id":null,"ordering_key":"k","idempotency_key":"i","metadata":{"a":"b"}}`,
		`{"type":"a","payload":1,"type":"b"}`, `{"\u0074ype":"a","payload":null}`, `{"type":"a","payload":}`, `{"TYPE":"a","payload":1}`, `[]`, `{`, "{\"type\":\"a\",\"payload\":\"\xff\"}",
		`{"type":"a","payload":1} `, `{"type":"a","payload":1}{}`, `{"type":"a","payload":1,"id":"evt_01m8mnc692fxgt1qs89yv86m2t"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in := intake{now: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), maxPayload: 1 << 20}
		it, err := in.single(body)
		wellFormed := json.Valid(body) && utf8.Valid(body)
		if p, is := errors.AsType[*Problem](err); err != nil && (!is || p.Status/100 != 4 || len(p.Errors) == 0) {
			t.Fatalf("%q: %#v", body, err)
		} else if is && p.Code == CodeInvalidPayload && wellFormed && !strings.Contains(p.Detail, "deeper") && !strings.Contains(p.Detail, "surrogate") {
			t.Fatalf("%q is well-formed, but: %v", body, p)
		}
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if !wellFormed || json.Unmarshal(body, &want) != nil {
			t.Fatalf("%q was accepted", body)
		}
		if !bytes.Equal(it.Payload, want["payload"]) {
			t.Fatalf("%q: payload %q, want %q", body, it.Payload, want["payload"])
		}
		var eventType string
		if json.Unmarshal(want["type"], &eventType) != nil || it.Type != eventType || !outbox.ValidEventType(it.Type) {
			t.Fatalf("%q: type %q, want %s", body, it.Type, want["type"])
		}
	})
}

// A PATCH of metadata is the merge of RFC 7396, section 2, over objects of strings.
func TestTextMap_patchIsRFC7396(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.MapOf(names, rapid.String()).Draw(t, "old")
		patch := rapid.MapOf(names, rapid.Ptr(rapid.StringMatching(`[a-zé"\\]*`), true)).Draw(t, "patch")
		want := map[string]string{}
		maps.Copy(want, old)
		for name, text := range patch {
			if text == nil {
				delete(want, name)
			} else {
				want[name] = *text
			}
		}
		raw, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := json.Marshal(old)
		var items []Item
		got, ok := value{raw: raw, merge: true, items: &items}.textMap(old, 50, 100)
		if !ok || !cmp.Equal(got, want) {
			t.Fatalf("%v patched by %s is %v (%v), want %v", old, raw, got, items, want)
		}
		if after, _ := json.Marshal(old); !bytes.Equal(before, after) {
			t.Fatal("the old map was changed")
		}
	})
}
