package rawjson

import "testing"

// The rows are RFC 8259, sections 7 and 8.2: a character outside the basic plane is a pair of
// escapes, and half of one is no character.
func TestText_surrogates(t *testing.T) {
	for literal, want := range map[string]string{
		`"\ud834\udd1e"`:         "\U0001D11E",
		`"a\uD834\uDD1Eb"`:       "a\U0001D11Eb",
		`"\\ud834"`:              `\ud834`,
		`"\uFFFD"`:               "\uFFFD",
		`"\ud7ff\ue000"`:         "\ud7ff\ue000",
		`"\n\ud834\udd1e\u0041"`: "\n\U0001D11EA",
	} {
		if got, ok := Text([]byte(literal)); !ok || got != want {
			t.Errorf("%s is %q (%v), want %q", literal, got, ok, want)
		}
	}
	for _, literal := range []string{`"\ud800"`, `"a\udc00"`, `"\ud834 \udd1e"`, `"\udd1e\ud834"`, `"\ud834\ud834\udd1e"`, `"\ud834\\udd1e"`, `"\ud834\n"`, `"\\\ud834"`} {
		if got, ok := Text([]byte(literal)); ok {
			t.Errorf("%s is %q, want nothing", literal, got)
		}
		object := NewScanner([]byte("{" + literal + ":1}"))
		if err := object.Open('{'); err != nil {
			t.Fatal(err)
		}
		if name, _, err := object.Member(); err == nil {
			t.Errorf("%s is the name %q", literal, name)
		}
	}
}
