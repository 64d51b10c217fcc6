package receive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPointer_findsWhatEncodingJSONFinds(t *testing.T) {
	names := []string{"id", "type", "a", "", "é", "a/b", "m~n", "0"}
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if depth == 0 {
				kind %= 4
			}
			switch kind {
			case 0:
				return rapid.String().Draw(t, "text")
			case 1:
				return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "number")))
			case 2:
				return rapid.Bool().Draw(t, "bool")
			case 3:
				return nil
			case 4:
				return rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "array")
			}
			return rapid.MapOfN(rapid.SampledFrom(names), value(depth-1), 0, 5).Draw(t, "object")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.MapOfN(rapid.SampledFrom(names), value(3), 0, 6).Draw(t, "doc")
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, text, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			text = spaced.Bytes()
		}
		path := rapid.SliceOfN(rapid.SampledFrom(append(names, "1", "2")), 1, 4).Draw(t, "path")
		var want any = doc
		for _, token := range path {
			switch in := want.(type) {
			case map[string]any:
				v, ok := in[token]
				if !ok {
					v = struct{}{}
				}
				want = v
			case []any:
				want = struct{}{}
				for i, v := range in {
					if fmt.Sprint(i) == token {
						want = v
					}
				}
			default:
				want = struct{}{}
			}
		}
		got, ok := pointer(path).text(text)
		switch w := want.(type) {
		case string:
			if !ok || got != strings.ToValidUTF8(w, "\ufffd") {
				t.Fatalf("%v in %s: %q %v, want %q", path, text, got, ok, w)
			}
		case json.Number:
			if !ok || got != string(w) {
				t.Fatalf("%v in %s: %q %v, want %q", path, text, got, ok, w)
			}
		default:
			if ok {
				t.Fatalf("%v in %s: found %q where there is %v", path, text, got, want)
			}
		}
	})
}

func TestPointer_ofARepeatedNameTheLastCounts(t *testing.T) {
	const doc = `{"id":"first","x":{"id":"inner"},"i\u0064":"last"}`
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	if got, ok := (pointer{"id"}).text([]byte(doc)); !ok || got != v.ID {
		t.Errorf("%q, and encoding/json reads %q", got, v.ID)
	}
}

func TestJSONArray_cutsWithoutChangingAByte(t *testing.T) {
	elements, err := JSONArray("/events")([]byte(`{"n":1,"events":[ {"a": 1.0} , [2], "x" ,null,3 ]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"a": 1.0}`, `[2]`, `"x"`, `null`, `3`}
	if len(elements) != len(want) {
		t.Fatalf("%q", elements)
	}
	for i, e := range elements {
		if string(e) != want[i] || cap(e) != len(e) {
			t.Errorf("%q (room for %d), want %q", e, cap(e), want[i])
		}
	}
	for _, bad := range []string{``, `{}`, `{"events":{}}`, `{"events":[1,]}`, `{"events":[1}`, `[1]`, `{"events":[1]} x`} {
		if elements, err := JSONArray("/events")([]byte(bad)); err == nil {
			t.Errorf("%s: %q", bad, elements)
		}
	}
}

func FuzzPointer(f *testing.F) {
	for _, seed := range []string{
		`{"id":"evt_1"}`, `{"id":`, `{"a":[1,{"id":"x"}],"id":2}`, `{"id":"\ud800"}`, `[[[[[[`, `{"":{}}`, `{"id" : "a" , "id":"b"}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(seed), "/id")
	}
	f.Add([]byte(`{"a":[1,{"id":"x"}]}`), "/a/1/id")
	f.Fuzz(func(t *testing.T, doc []byte, at string) {
		p, err := parsePointer(at)
		if err != nil {
			return
		}
		got, ok := p.text(doc)
		if len(p) != 1 || !json.Valid(doc) || doc[bytes.IndexFunc(doc, func(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) })] != '{' {
			return // of what is no JSON nothing is promised, but that nothing breaks
		}
		var all map[string]json.RawMessage
		if json.Unmarshal(doc, &all) != nil {
			return
		}
		raw, there := all[p[0]]
		var want string
		isText := there && len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &want) == nil
		if isText && (!ok || got != want) {
			t.Errorf("%s in %q: %q %v, want %q", at, doc, got, ok, want)
		}
		if !there && ok {
			t.Errorf("%s in %q: found %q", at, doc, got)
		}
	})
}

func FuzzJSONArray(f *testing.F) {
	for _, seed := range []string{`[]`, `[1,2]`, `[{"a":1} , "x"]`, `[`, `[[],[]]`, ` [ 1 ] `} {
		f.Add([]byte(seed))
	}
	split := JSONArray("")
	f.Fuzz(func(t *testing.T, body []byte) {
		elements, err := split(body)
		if err != nil {
			return
		}
		var want []json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil || len(want) != len(elements) {
			t.Fatalf("%q: %d elements, want %d, %v", body, len(elements), len(want), err)
		}
		for i := range want {
			if !bytes.Equal(elements[i], want[i]) {
				t.Errorf("%q: element %d is %q, want %q", body, i, elements[i], want[i])
			}
		}
	})
}
