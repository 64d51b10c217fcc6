package keyring

import (
	"errors"
	"testing"
)

func TestKeyring_admitsOnlyWhatOpensTheDatabase(t *testing.T) {
	ring := func(current []byte, old ...[]byte) *Keyring {
		t.Helper()
		k, err := New(current, old...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first, second, third := NewKey(), NewKey(), NewKey()
	markOf := func(key []byte) []byte {
		t.Helper()
		mark, err := ring(key).Admit(nil, nil)
		if err != nil || mark == nil {
			t.Fatalf("a new database: mark %x, %v", mark, err)
		}
		return mark
	}
	headerOf := func(key []byte) []byte { return ring(key).Seal([]byte("secret"), "a place")[:HeaderSize] }
	garbage := []byte{0x0b, 0xad}
	type list = [][]byte

	for name, row := range map[string]struct {
		ring   *Keyring
		marks  list
		stored list
		adds   bool
		err    error
	}{
		"the same key again":                            {ring(first), list{markOf(first)}, list{headerOf(first)}, false, nil},
		"the same key, nothing stored yet":              {ring(first), list{markOf(first)}, nil, false, nil},
		"another key":                                   {ring(second), list{markOf(first)}, list{headerOf(first)}, false, ErrWrongKey},
		"another key before anything is sealed":         {ring(second), list{markOf(first)}, nil, false, ErrWrongKey},
		"a new key and the old one":                     {ring(second, first), list{markOf(first)}, list{headerOf(first)}, true, nil},
		"the rotated key again":                         {ring(second, first), list{markOf(first), markOf(second)}, list{headerOf(first)}, false, nil},
		"the old key dropped too early":                 {ring(second), list{markOf(first), markOf(second)}, list{headerOf(second), headerOf(first)}, false, ErrMissingKey},
		"the old key dropped when nothing needs it":     {ring(second), list{markOf(first), markOf(second)}, list{headerOf(second)}, false, nil},
		"back to the old key while the new one seals":   {ring(first), list{markOf(first), markOf(second)}, list{headerOf(first), headerOf(second)}, false, ErrMissingKey},
		"one of three lacks":                            {ring(third, first), list{markOf(first), markOf(second)}, list{headerOf(second)}, false, ErrMissingKey},
		"no marks, the key that sealed":                 {ring(first), nil, list{garbage, headerOf(first)}, true, nil},
		"no marks, sealed by the old one":               {ring(second, first), nil, list{headerOf(first)}, true, nil},
		"no marks, another key":                         {ring(second), nil, list{headerOf(first)}, false, ErrWrongKey},
		"damaged rows are no key":                       {ring(first), list{markOf(first)}, list{garbage, headerOf(third), headerOf(first)}, false, nil},
		"a damaged mark, as if nobody had left any key": {ring(first), list{garbage}, list{headerOf(first)}, false, ErrWrongKey},
	} {
		t.Run(name, func(t *testing.T) {
			mark, err := row.ring.Admit(row.marks, row.stored)
			if !errors.Is(err, row.err) || (mark != nil) != row.adds {
				t.Errorf("mark %x, %v; want one added: %v, %v", mark, err, row.adds, row.err)
			}
			if mark == nil {
				return
			}
			if again, err := row.ring.Admit(append(row.marks, mark), row.stored); again != nil || err != nil {
				t.Errorf("with its own mark: %x, %v", again, err)
			}
		})
	}
}
