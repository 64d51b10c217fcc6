package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes values from schemas, right and wrong ones, the same for the same seed.
type generator struct {
	*rand.Rand
	doc   *document
	world *world
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// wrong are values that most fields refuse, and that must not hurt where they are taken. Each is
// well-formed JSON.
var wrong = []json.RawMessage{
	[]byte(`null`), []byte(`true`), []byte(`-1`), []byte(`0`), []byte(`1e308`), []byte(`-1e400`), []byte(`1e-400`),
	[]byte(`123456789012345678901234567890`), []byte(`9223372036854775808`), []byte(`0.1e1`), []byte(`1.0000000000000001`),
	[]byte(`""`), []byte(`" "`), []byte(`"\u0000"`), []byte(`"a\u0000b"`), []byte(`"\u0001\u001f\u007f"`), []byte(`"\ud800"`), []byte(`"\udc00\ud800"`),
	[]byte(`"\u202eabc"`), []byte("\"\u2028\u2029\uFEFF\""), []byte(`"\r\nX-Injected: 1"`), []byte(`"'; DROP TABLE events; --"`), []byte(`"%s%n%00"`), []byte(`"../../etc/passwd"`),
	[]byte(`"` + strings.Repeat("a", 70) + `"`), []byte(`"` + strings.Repeat("é", 5000) + `"`),
	[]byte(`[]`), []byte(`{}`), []byte(`[null]`), []byte(`[[[[[[[[[[]]]]]]]]]]`), []byte(`{"":""}`), []byte(`{"a":{"a":{"a":null}}}`), []byte(`{"__proto__":{"x":1}}`), []byte(`["a",1,{}]`),
	[]byte(`"2026-13-45T99:99:99Z"`), []byte(`"0001-01-01T00:00:00Z"`), []byte(`"9999-12-31T23:59:59.999999999Z"`), []byte(`"2026-11-30T12:00:00+23:59"`),
	[]byte(strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900)),
}

// value makes JSON for a schema: mostly of the right kind, within its bounds or at their edges.
func (g *generator) value(schema map[string]any, name string, depth int) json.RawMessage {
	if g.oneIn(12) {
		return pick(g, wrong)
	}
	schema = g.doc.resolve(schema)
	if some, is := schema["anyOf"].([]any); is {
		return g.value(at(pick(g, some)), name, depth)
	}
	if words, is := schema["enum"].([]any); is {
		return encode(pick(g, words))
	}
	if known := g.world.named(name); len(known) > 0 && !g.oneIn(6) {
		return encode(pick(g, known))
	}
	kind, _ := schema["type"].(string)
	if kinds, is := schema["type"].([]any); is {
		kind = pick(g, kinds).(string)
	}
	switch kind {
	case "object":
		return g.object(schema, depth)
	case "array":
		parts := []json.RawMessage{}
		for range g.IntN(4) {
			parts = append(parts, g.value(at(schema, "items"), name, depth+1))
		}
		return encode(parts)
	case "string":
		return encode(g.text(schema, name))
	case "integer", "number":
		return g.number(schema, kind)
	case "boolean":
		return encode(g.oneIn(2))
	case "null":
		return []byte("null")
	}
	return pick(g, wrong) // anything goes
}

func (g *generator) object(schema map[string]any, depth int) json.RawMessage {
	required, _ := schema["required"].([]any)
	var out strings.Builder
	out.WriteByte('{')
	add := func(name string, v json.RawMessage) {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%s:%s", encode(name), v)
	}
	properties := at(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if need := slices.Contains(required, any(name)); need && g.oneIn(25) || !need && !g.oneIn(3) {
			continue
		}
		v := g.value(at(properties, name), name, depth+1)
		add(name, v)
		if g.oneIn(80) {
			add(name, v) // twice
		}
	}
	if values := at(schema, "additionalProperties"); values != nil {
		for i := range g.IntN(3) {
			add(fmt.Sprintf("x-key-%d", i), g.value(values, "", depth+1))
		}
	}
	if g.oneIn(30) {
		add("no_such_field", pick(g, wrong))
	}
	out.WriteByte('}')
	return json.RawMessage(out.String())
}

func (g *generator) text(schema map[string]any, name string) string {
	switch {
	case schema["format"] == "date-time":
		return pick(g, []string{"2020-01-01T00:00:00Z", "2026-11-30T12:00:00.123Z", "2100-01-01T00:00:00+02:00", "2026-11-30", "yesterday"})
	case schema["format"] == "uri" || strings.HasSuffix(name, "url"):
		return pick(g, []string{g.world.receiver, "https://example.com/hooks", "http://[::1", "http://user:pw@example.com/", "ftp://example.com", "https://example.com:22/", "https://xn--a.example/%zz", "http://169.254.169.254/", "https://exa mple.com", "//example.com", "https://éxample.com/ü?q=1#f"})
	}
	words := []string{"a", "payment.succeeded", "order.*", "*", "404", "5xx", "x_Y-1.z:2", "ünï", "standard", "ed25519", "stripe"}
	if max, is := schema["maxLength"].(json.Number); is && g.oneIn(8) {
		n, _ := max.Int64()
		return strings.Repeat("a", int(min(n, 5000))+g.IntN(3)-1)
	}
	return pick(g, words)
}

func (g *generator) number(schema map[string]any, kind string) json.RawMessage {
	edges := []string{"0", "1", "2", "50"}
	for _, bound := range []string{"minimum", "maximum", "default"} {
		if n, is := schema[bound].(json.Number); is {
			edges = append(edges, n.String(), n.String())
		}
	}
	if kind == "number" {
		edges = append(edges, "0.5", "1.25e1")
	}
	return json.RawMessage(pick(g, edges))
}

func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is made of texts, numbers and lists
	}
	return text
}
