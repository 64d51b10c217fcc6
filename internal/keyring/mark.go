package keyring

import (
	"bytes"
	"errors"
	"slices"
)

// HeaderSize is how many of a sealed value's first bytes say which key sealed it.
const HeaderSize = header

var (
	// ErrWrongKey says that none of the keys has served this database before.
	ErrWrongKey = errors.New("the encryption key is not the one that this database is sealed with")
	// ErrMissingKey says that an older key, which is not among these, still seals what is stored.
	ErrMissingKey = errors.New("an older encryption key, which still seals a part of this database, is missing")
)

// A mark is a text everybody knows, sealed: opening it proves the key and gives nothing away.
const (
	markPlace = "mark of a database"
	markText  = "waybill"
)

// Admit decides whether a database may be served with these keys. marks are those of the keys it
// was served with before, and stored the headers (HeaderSize bytes each) of what is sealed in it
// now, damaged rows among them. It returns the mark to add, nil for none. ErrWrongKey and
// ErrMissingKey: nearly every delivery would fail for good, and the endpoint's owner, who did
// nothing wrong, would be told so.
func (k *Keyring) Admit(marks, stored [][]byte) (mark []byte, err error) {
	missing, known, current := false, false, false
	for _, m := range marks {
		switch text, err := k.Open(m, markPlace); {
		case err == nil && string(text) == markText:
			known = true
			current = current || k.keys[0].sealed(m)
		case len(m) > header:
			missing = missing || slices.ContainsFunc(stored, func(s []byte) bool { return bytes.HasPrefix(m, s) })
		}
	}
	if len(marks) == 0 { // it is new, or from a version that left none
		known = len(stored) == 0 || slices.ContainsFunc(stored, k.hasKeyOf)
	}
	switch {
	case !known:
		return nil, ErrWrongKey
	case missing:
		return nil, ErrMissingKey
	case current:
		return nil, nil
	}
	return k.Seal([]byte(markText), markPlace), nil
}

// hasKeyOf reports whether one of the keys sealed a value, going by its header alone.
func (k *Keyring) hasKeyOf(value []byte) bool {
	return slices.ContainsFunc(k.keys, func(s sealer) bool { return s.sealed(value) })
}

// sealed reports whether this key sealed a value, going by its header alone.
func (s sealer) sealed(value []byte) bool {
	return len(value) >= header && value[0] == version && bytes.Equal(value[1:header], s.id[:])
}
