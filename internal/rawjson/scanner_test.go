package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func whole(data []byte) ([]byte, error) {
	s := NewScanner(data)
	value, err := s.Value()
	if err != nil {
		return nil, err
	}
	return value, s.End()
}

var samples = []string{
	`null`, `true`, `false`, ` 0 `, `-0`, `1E2`, `0.10`, `-12.5e+10`, `9007199254740993`, `""`, `"a\u0000b"`, `"\ud800"`,
	`"🚀 Gold é"`, `[]`, `[ ]`, `{}`, `{ }`, `[1,2, 3]`, `{"a":{"b":[{},[],""]}}`, "\t{\n\"x\"\r: 1 } ",
	`{ "b": 1.0, "a": "<&>", "id": 9007199254740993 }`, `{"a":1,"a":2}`, `"01234567\"89"`, `"\\\/\b\f\n\r\t"`,
	``, ` `, `nul`, `nulll`, `True`, `01`, `1.`, `.5`, `+1`, `1e`, `--1`, `"`, `"\x"`, `"\u12g4"`, `"\u12`, "\"\t\"", "\"\x00\"",
	`[1,]`, `[,1]`, `[1 2]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{1:1}`, `[}`, `{]`, `[1}`, `{"a":1]`, `[`, `{`, `{"a":`, `]`,
	"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\xff", "{\"\xfe\":1}", "\"abcdefg\xf0\x9f\x9a\"", "\uFEFF1", `1 1`, `{} []`, "\"\u007f\"",
}

func TestScanner_agreesWithTheStandardLibrary(t *testing.T) {
	for _, text := range samples {
		compare(t, []byte(text))
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range samples {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, data) })
}

func compare(t *testing.T, data []byte) {
	t.Helper()
	value, err := whole(data)
	var fault *Error
	if errors.As(err, &fault) && fault.Fault == TooDeep {
		return
	}
	if want := json.Valid(data) && utf8.Valid(data); want != (err == nil) {
		t.Fatalf("%q: %v, but json.Valid is %v and utf8.Valid %v", data, err, json.Valid(data), utf8.Valid(data))
	}
	if err != nil {
		if fault == nil || fault.Offset < 0 || fault.Offset > len(data) {
			t.Fatalf("%q: %#v", data, err)
		}
		return
	}
	if want := bytes.Trim(data, " \t\r\n"); !bytes.Equal(value, want) {
		t.Fatalf("%q: the value is %q", data, value)
	}
	if value[0] == '"' {
		var want string
		got, ok := Text(value)
		if json.Unmarshal(value, &want) != nil || ok && got != want || !ok && !strings.ContainsRune(want, utf8.RuneError) {
			t.Fatalf("%q: read as %q (%v), want %q", data, got, ok, want)
		}
	}
	members(t, data, value)
}

// members walks an object or array step by step and compares with a decoder's raw messages.
func members(t *testing.T, data, value []byte) {
	t.Helper()
	s := NewScanner(data)
	switch value[0] {
	case '{':
		var want map[string]json.RawMessage
		if err := json.Unmarshal(value, &want); err != nil {
			return // deeper than the standard library goes
		}
		got := map[string]json.RawMessage{}
		if err := s.Open('{'); err != nil {
			t.Fatal(err)
		}
		for {
			name, more, err := s.Member()
			if fault, is := errors.AsType[*Error](err); is && strings.Contains(fault.Reason, "surrogate") {
				return
			}
			if err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			if !more {
				break
			}
			raw, err := s.Value()
			if err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			got[string(name)] = raw
		}
		if err := s.End(); err != nil || !cmp.Equal(got, want) {
			t.Fatalf("%q: %v %s", data, err, cmp.Diff(want, got))
		}
	case '[':
		var want, got []json.RawMessage
		if err := json.Unmarshal(value, &want); err != nil {
			return
		}
		if err := s.Open('['); err != nil {
			t.Fatal(err)
		}
		for {
			more, err := s.Element()
			if err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			if !more {
				break
			}
			raw, err := s.Value()
			if err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			got = append(got, raw)
		}
		if err := s.End(); err != nil || len(got) != len(want) {
			t.Fatalf("%q: %v, %d elements, want %d", data, err, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%q: element %d is %q, want %q", data, i, got[i], want[i])
			}
		}
	}
}

func TestScanner_depth(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		at   int // the byte that is one too deep; 0: none is
	}{
		"1,000 arrays":         {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), 0},
		"1,001 arrays":         {strings.Repeat("[", 1001) + strings.Repeat("]", 1001), 1000},
		"1,000 objects":        {strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), 0},
		"1,001 objects":        {strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001), 5000},
		"1,000, alternating":   {strings.Repeat(`[{"a":`, 500) + "1" + strings.Repeat("}]", 500), 0},
		"200,000 arrays":       {strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000), 1000},
		"50,000 objects":       {strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000), 5000},
		"wide, not deep":       {"[" + strings.Repeat("[],", 100_000) + "[]]", 0},
		"deep twice in a row":  {"[" + strings.Repeat("[", 999) + strings.Repeat("]", 999) + "," + strings.Repeat("[", 999) + strings.Repeat("]", 999) + "]", 0},
		"unclosed 200,000 [ s": {strings.Repeat("[", 200_000), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := whole([]byte(tc.text))
			fault, _ := errors.AsType[*Error](err)
			switch {
			case tc.at == 0 && err != nil:
				t.Errorf("error %v", err)
			case tc.at > 0 && (fault == nil || fault.Fault != TooDeep || fault.Offset != tc.at):
				t.Errorf("error %v, want that byte %d is too deep: what follows costs nothing", err, tc.at)
			}
		})
	}
}

func TestScanner_saysWhatAndWhere(t *testing.T) {
	for text, want := range map[string]Error{
		`{"a":1,}`:      {Malformed, 7, `unexpected '}', want a member's name`},
		`[1`:            {Malformed, 2, `unexpected end, want a comma or the end`},
		"\"ab\xff\"":    {Encoding, 3, `invalid UTF-8`},
		"\"a\nb\"":      {Malformed, 2, `control character in a string`},
		`{"a":1} extra`: {Malformed, 8, `unexpected 'e', want the end`},
	} {
		_, err := whole([]byte(text))
		fault, ok := errors.AsType[*Error](err)
		if !ok || *fault != want {
			t.Errorf("%q: %v, want %v", text, err, &want)
		}
	}
}

func BenchmarkScanner_oneKilobyte(b *testing.B) {
	text := []byte(`{"type":"payment.succeeded","payload":{"id":"pay_0123456789","amount":1999,"currency":"eur","lines":[` +
		strings.Repeat(`{"sku":"A-1234","text":"One thing or another","count":3,"price":"6.66"},`, 12) + `{}]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := whole(text); err != nil {
			b.Fatal(err)
		}
	}
}
