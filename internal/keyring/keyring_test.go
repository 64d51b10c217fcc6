package keyring

import (
	"bytes"
	"errors"
	"testing"
)

func TestKeyring_opensOnlyItsOwn(t *testing.T) {
	oldKey, newKey := NewKey(), NewKey()
	before, err := New(oldKey)
	if err != nil {
		t.Fatal(err)
	}
	after, err := New(newKey, oldKey)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := New(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	sealed := before.Seal(plain, "tenant 1")

	if bytes.Contains(sealed, plain[6:]) {
		t.Fatal("the sealed value holds the plain one")
	}
	if again := before.Seal(plain, "tenant 1"); bytes.Equal(again, sealed) {
		t.Error("sealing twice gave the same bytes: the nonce is not random")
	}
	for name, tc := range map[string]struct {
		ring   *Keyring
		place  string
		sealed []byte
		opens  bool
	}{
		"the same ring":      {before, "tenant 1", sealed, true},
		"after rotation":     {after, "tenant 1", sealed, true},
		"another place":      {before, "tenant 2", sealed, false},
		"another key":        {stranger, "tenant 1", sealed, false},
		"one bit changed":    {before, "tenant 1", flip(sealed), false},
		"cut":                {before, "tenant 1", sealed[:len(sealed)-1], false},
		"empty":              {before, "tenant 1", nil, false},
		"the plain value":    {before, "tenant 1", plain, false},
		"new key, old ring":  {before, "tenant 1", after.Seal(plain, "tenant 1"), false},
		"new key, both keys": {after, "tenant 1", after.Seal(plain, "tenant 1"), true},
	} {
		got, err := tc.ring.Open(tc.sealed, tc.place)
		if tc.opens && (err != nil || !bytes.Equal(got, plain)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if !tc.opens && !errors.Is(err, ErrSealed) {
			t.Errorf("%s: opened as %q (%v)", name, got, err)
		}
	}
}

func TestNew_refusesShortKeys(t *testing.T) {
	if _, err := New(make([]byte, 16)); err == nil {
		t.Error("a 16-byte key was taken")
	}
	if _, err := ParseKey("c2hvcnQ="); err == nil {
		t.Error("a short base64 key was taken")
	}
}

func flip(b []byte) []byte {
	c := bytes.Clone(b)
	c[len(c)-1] ^= 1
	return c
}
