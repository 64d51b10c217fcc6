package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"testing"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Whoever changes the API and forgets the clients is told here, without generators or a network.
func TestClients_areMadeFromTheDocumentThatTheServerPrints(t *testing.T) {
	printed, err := document()
	if err != nil {
		t.Fatal(err)
	}
	kept := read(t, "../../clients/openapi.json")
	if !bytes.Equal(kept, printed) {
		t.Fatal(`clients/openapi.json is not what the server prints: run "make generate"`)
	}
	head := regexp.MustCompile(`^// openapi\.json sha256 ([0-9a-f]{64})\n// generated sha256 ([0-9a-f]{64})\n\n`)
	for _, path := range []string{"../../clients/go/api.gen.go", "../../clients/typescript/src/api.gen.ts"} {
		text := read(t, path)
		found := head.FindSubmatch(text)
		if found == nil {
			t.Errorf("%s does not begin with its digests", path)
			continue
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(kept)); got != string(found[1]) {
			t.Errorf(`%s was made from another document: run "make generate"`, path)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(text[len(found[0]):])); got != string(found[2]) {
			t.Errorf(`%s was changed by hand: run "make generate"`, path)
		}
	}
}
