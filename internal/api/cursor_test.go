package api

import (
	"net/http/httptest"
	"testing"
)

// A cursor leads on in the list it came from, or nowhere.
func FuzzCursor(f *testing.F) {
	read := func(path, cursor string) (position, error) {
		r := httptest.NewRequest("GET", path, nil)
		q := r.URL.Query()
		q.Set("cursor", cursor)
		r.URL.RawQuery = q.Encode()
		p := (&request{Request: r, who: Holder{}}).params()
		_, after := p.page()
		return after, p.err()
	}
	made := func(path string, after position) string {
		p := (&request{Request: httptest.NewRequest("GET", path, nil), who: Holder{}}).params()
		p.page()
		return *p.cursor(after)
	}
	good := made("/v1/tenants", position{15: 7})
	for _, seed := range []string{good, "", "x", good + "A", good[:len(good)-1], "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", good + "=", " " + good} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		after, err := read("/v1/tenants", cursor)
		if err != nil {
			return
		}
		if again := made("/v1/tenants", after); again != cursor {
			t.Errorf("%q is taken for %q", cursor, again)
		}
		if _, err := read("/v1/endpoints", cursor); err == nil {
			t.Errorf("%q is good for another list", cursor)
		}
	})
}
