package outboxtest

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var publishingBytes = topic{"payload bytes", []promise{
	{"every payload comes back byte for byte, wherever it is read", payloadsAreBytes},
	{"an empty payload is not a lost one", emptyPayload},
	{"metadata and ordering key come back as they were", metadataComesBack},
}}

// hostilePayloads are what somebody who parses, prints, trims or decodes would change.
func hostilePayloads() map[string][]byte {
	random := make([]byte, outbox.HardMaxPayload)
	for i, source := 0, rand.New(rand.NewPCG(1, 2)); i < len(random); i++ {
		random[i] = byte(source.Uint32())
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return map[string][]byte{
		"white space":        []byte(" {\t\"a\" :\r\n 1 }\n"),
		"numbers":            []byte(`{"b":1.0,"a":1E2,"id":9007199254740993,"z":-0}`),
		"html":               []byte(`{"a":"<&>\u003c` + "\u2028" + `"}`),
		"equal keys":         []byte(`{"a":1,"a":2}`),
		"escaped NUL":        []byte(`{"a":"\u0000"}`),
		"raw NUL":            []byte("{\"a\":\"\x00\"}"),
		"invalid UTF-8":      {'"', 0xe2, 0x28, 0xa1, 0xff, '"'},
		"lone surrogate":     []byte(`"\ud800"`),
		"byte order mark":    []byte("\ufeff{}"),
		"emoji":              []byte(`{"tier":"🚀 Gold é"}`),
		"looks like bytea":   []byte(`\x7b7d`),
		"looks like escapes": []byte(`\\000\'"; DROP TABLE event; --`),
		"every byte":         every,
		"a megabyte":         random,
		"deep":               []byte(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)),
		"one byte":           {0},
	}
}

func payloadsAreBytes(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	payloads := map[outbox.EventID][]byte{}
	names := map[outbox.EventID]string{}
	for name, payload := range hostilePayloads() {
		id := w.publishOne(acme, "a.b", string(payload)).ID
		payloads[id], names[id] = payload, name
	}
	same := func(where string, id outbox.EventID, got []byte) {
		if !bytes.Equal(got, payloads[id]) {
			w.Errorf("%s: %s: %d other bytes, want %d", where, names[id], len(got), len(payloads[id]))
		}
	}

	rows := w.source(w.outbox())
	for _, row := range rows {
		same("outbox", row.Event, row.Source.Payload)
	}
	w.route()
	for id := range payloads {
		payload, err := w.store.Payload(w.ctx, acme.TenantRef, id)
		w.must(err)
		same("payload", id, payload)
		view, err := w.store.Event(w.ctx, acme.TenantRef, id)
		w.must(err)
		if view.PayloadBytes != len(payloads[id]) {
			w.Errorf("%s: said to have %d bytes, want %d", names[id], view.PayloadBytes, len(payloads[id]))
		}
	}
	due := w.pending(e, outbox.LaneLive)
	if len(due) != len(payloads) {
		w.Fatalf("%d deliveries, want %d", len(due), len(payloads))
	}
	for _, d := range due {
		same("dispatch", d.Event, d.Payload)
	}
}

func emptyPayload(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	event := w.publishOne(acme, "a.b", "")
	payload, err := w.store.Payload(w.ctx, acme.TenantRef, event.ID)
	if err != nil || len(payload) != 0 {
		w.Errorf("payload %q, %v", payload, err)
	}
	if rows := w.source(w.outbox()); rows[0].Source == nil || !rows[0].HasPayload {
		w.Error("the outbox has no payload for it")
	}
	w.route()
	if due := w.pending(e, outbox.LaneLive); len(due) != 1 || due[0].Gone {
		w.Errorf("dispatch takes it for lost: %+v", due)
	}
}

func metadataComesBack(w *world) {
	acme := w.tenant("acme")
	for name, metadata := range map[string]map[string]string{
		"none":    nil,
		"empty":   {},
		"some":    {"a": "1", "b": ""},
		"hostile": {"": "empty key", `"'\`: `<&>` + "\u2028", "a\nb": "🚀"},
	} {
		e := w.event(acme, "a.b", `{}`)
		e.Metadata = metadata
		e.OrderingKey = name + ` 'ключ' \`
		w.publish(e)
		view, err := w.store.Event(w.ctx, acme.TenantRef, e.ID)
		w.must(err)
		w.equal(name+": metadata", view.Metadata, metadata)
		w.equal(name+": ordering key", view.OrderingKey, e.OrderingKey)
		w.equal(name+": digest", view.SHA256, e.SHA256)
	}
	for _, row := range w.source(w.outbox()) {
		if !strings.HasSuffix(row.Source.OrderingKey, `'ключ' \`) {
			w.Errorf("ordering key at routing: %q", row.Source.OrderingKey)
		}
	}
}
