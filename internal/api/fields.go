package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/rawjson"
)

// field is one member of a request object: how it gets into a T, and how the document shows it.
type field[T any] struct {
	name     string
	about    string
	schema   *huma.Schema
	required bool
	// set reads a value that is not null.
	set func(into *T, v value)
	// reset gives the field its default; nil where null is refused.
	reset func(into *T)
}

// value is a field's JSON as the request holds it. Its readers report what is wrong and return
// false; they never fail otherwise.
type value struct {
	raw  []byte
	path string
	// merge is set in a PATCH: objects are merged, and null in them removes (RFC 7396).
	merge   bool
	lenient bool
	items   *[]Item
}

func (v value) bad(code Code, format string, args ...any) {
	*v.items = append(*v.items, Item{Path: v.path, Code: code, Detail: fmt.Sprintf(format, args...)})
}

func (v value) invalid(format string, args ...any) { v.bad(CodeInvalidField, format, args...) }

// at is a part of v.
func (v value) at(path string, raw []byte) value {
	v.path, v.raw = path, raw
	return v
}

// notText is said of a string that JSON allows and no text can hold.
const notText = "holds half of a surrogate pair, which is no character"

// text reads a string of at most max bytes.
func (v value) text(max int) (string, bool) {
	if v.raw[0] != '"' {
		v.invalid("want a string")
		return "", false
	}
	s, ok := rawjson.Text(v.raw)
	switch {
	case !ok:
		v.invalid(notText)
	case len(s) > max:
		v.invalid("at most %d bytes", max)
	case strings.ContainsRune(s, 0):
		v.invalid("must not contain U+0000")
	default:
		return s, true
	}
	return "", false
}

// moment returns a time.
func (v value) moment() (time.Time, bool) {
	text, ok := v.text(64)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		v.invalid("want a time such as 2026-11-30T12:00:00Z")
		return time.Time{}, false
	}
	return t.UTC().Truncate(time.Microsecond), true
}

// oneOf reads one of a few words. Another word is a value this version does not know.
func (v value) oneOf(words ...string) (string, bool) {
	if v.raw[0] != '"' {
		v.invalid("want a string")
		return "", false
	}
	s, _ := rawjson.Text(v.raw)
	if slices.Contains(words, s) {
		return s, true
	}
	v.invalid("want %s", quoted(words))
	return "", false
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = `"` + word + `"`
	}
	if n := len(out) - 1; n > 0 {
		return strings.Join(out[:n], ", ") + " or " + out[n]
	}
	return out[0]
}

// boolean reads true or false.
func (v value) boolean() (is, ok bool) {
	switch string(v.raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	v.invalid("want true or false")
	return false, false
}

// number reads a number within bounds.
func (v value) number(min, max float64) (float64, bool) {
	var n float64
	if c := v.raw[0]; c != '-' && (c < '0' || c > '9') {
		v.invalid("want a number")
		return 0, false
	}
	if err := json.Unmarshal(v.raw, &n); err != nil || n < min || n > max {
		v.invalid("want a number from %g to %g", min, max)
		return 0, false
	}
	return n, true
}

// integer reads a whole number within bounds.
func (v value) integer(min, max int) (int, bool) {
	n, ok := v.number(float64(min), float64(max))
	if ok && n != float64(int(n)) {
		v.invalid("want a whole number")
		return 0, false
	}
	return int(n), ok
}

// list calls each with every element of an array.
func (v value) list(max int, each func(v value)) bool {
	if v.raw[0] != '[' {
		v.invalid("want an array")
		return false
	}
	s := rawjson.NewScanner(v.raw)
	_ = s.Open('[') // the value is well-formed, so walking over it cannot fail
	for i := 0; ; i++ {
		more, err := s.Element()
		if err != nil || !more {
			return true
		}
		if i == max {
			v.invalid("at most %d elements", max)
			return false
		}
		raw, _ := s.Value()
		each(v.at(fmt.Sprintf("%s[%d]", v.path, i), raw))
	}
}

// texts reads an array of strings.
func (v value) texts(max, maxLen int) ([]string, bool) {
	before := len(*v.items)
	texts := []string{}
	v.list(max, func(v value) {
		if s, ok := v.text(maxLen); ok {
			texts = append(texts, s)
		}
	})
	return texts, len(*v.items) == before
}

// textMap reads an object of strings. In a PATCH it is merged into old, null removing a name;
// else it replaces it. spell, if given, is how names are spelled in old. old is not changed.
func (v value) textMap(old map[string]string, maxEntries, maxLen int, spell ...func(string) string) (map[string]string, bool) {
	before := len(*v.items)
	texts := map[string]string{}
	if v.merge {
		maps.Copy(texts, old)
	}
	given := map[string]bool{}
	v.members(func(name string, v value) {
		spelled := name
		for _, f := range spell {
			spelled = f(spelled)
		}
		twice := given[spelled]
		given[spelled] = true
		if v.merge {
			name = spelled
		}
		switch {
		case twice:
			v.bad(CodeDuplicateField, "is given twice")
		case name == "" || len(name) > 128 || strings.ContainsRune(name, 0):
			v.invalid("a name has 1 to 128 bytes and no U+0000")
		case string(v.raw) == "null" && v.merge:
			delete(texts, name)
		default:
			if s, ok := v.text(maxLen); ok {
				texts[name] = s
			}
		}
	})
	if len(texts) > maxEntries {
		v.invalid("at most %d entries", maxEntries)
	}
	return texts, len(*v.items) == before
}

// members calls each with every member of an object.
func (v value) members(each func(name string, v value)) {
	if v.raw[0] != '{' {
		v.invalid("want an object")
		return
	}
	s := rawjson.NewScanner(v.raw)
	_ = s.Open('{') // well-formed, as above
	seen := map[string]bool{}
	for {
		rawName, more, err := s.Member()
		if err != nil { // all else about it was well-formed
			v.invalid("in a name: " + notText)
			return
		}
		if !more {
			return
		}
		raw, _ := s.Value()
		name := string(rawName)
		at := v.at(join(v.path, name), raw)
		if seen[name] {
			at.bad(CodeDuplicateField, "is given twice")
			continue
		}
		seen[name] = true
		each(name, at)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fill reads an object's members into into: absent ones keep their value, null ones get their
// default.
func fill[T any](v value, fields []field[T], into *T) {
	given := map[string]bool{}
	v.members(func(name string, v value) {
		given[name] = true
		for i := range fields {
			f := &fields[i]
			switch {
			case f.name != name:
				continue
			case string(v.raw) != "null":
				f.set(into, v)
			case f.reset != nil:
				f.reset(into)
			default:
				v.invalid("must not be null")
			}
			return
		}
		if !v.lenient {
			v.bad(CodeUnknownField, "there is no such field")
		}
	})
	for _, f := range fields {
		if f.required && v.raw[0] == '{' && !given[f.name] {
			v.at(join(v.path, f.name), nil).bad(CodeMissingField, "is required")
		}
	}
}

// object checks that a control request's body is one JSON object.
func (q *request) object() ([]byte, error) {
	body := q.body
	if len(body) == 0 && !q.route.needsBody() {
		return []byte("{}"), nil
	}
	s := rawjson.NewScanner(body)
	if s.Kind() != '{' && len(body) > 0 {
		if _, err := s.Value(); err == nil {
			return nil, fail(CodeInvalidJSON, "the body must be a JSON object")
		}
		s = rawjson.NewScanner(body)
	}
	raw, err := s.Value()
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, fail(CodeInvalidJSON, "%s", sentence(err))
	}
	return raw, nil
}

// sentence is what rawjson says about a text; it quotes one character of it at most.
func sentence(err error) string {
	var fault *rawjson.Error
	if errors.As(err, &fault) && utf8.ValidString(fault.Reason) {
		return fault.Error()
	}
	return "not well-formed"
}

// fillBody reads the request's body through a table of fields.
func fillBody[T any](q *request, raw []byte, fields []field[T], into *T) error {
	var items []Item
	fill(value{raw: raw, merge: q.Method == "PATCH", lenient: q.lenient, items: &items}, fields, into)
	if len(items) > 0 {
		return failItems(items)
	}
	return nil
}

// describe is the schema of a request object, under the name it has in the document.
func describe[T any](title string, fields []field[T]) *huma.Schema {
	s := &huma.Schema{Title: title, Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for _, f := range fields {
		shown := *f.schema
		shown.Description = f.about
		shown.Nullable = f.reset != nil && shown.Type != ""
		if f.reset != nil && len(shown.AnyOf) > 0 {
			shown.AnyOf = append(shown.AnyOf[:len(shown.AnyOf):len(shown.AnyOf)], &huma.Schema{Type: "null"})
		}
		s.Properties[f.name] = &shown
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}
