package attempt

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var fuzzNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var update = flag.Bool("update", false, "write docs/failures.md from the table of sentences")

// docs/failures.md is the table of sentences, for people.
func TestSentences_thePageOfThemIsCurrent(t *testing.T) {
	causes := make([]cause, 0, len(sentences))
	for c := range sentences {
		causes = append(causes, c)
	}
	slices.SortFunc(causes, func(a, b cause) int {
		return cmp.Or(strings.Compare(string(sentences[a].kind), string(sentences[b].kind)), strings.Compare(string(a), string(b)))
	})
	var page strings.Builder
	page.WriteString(`# What went wrong

Every failed attempt has a kind, for programs, and one sentence, for whoever runs the receiver. This page is all of them; it is written from the table in the code by ` + "`go test ./internal/attempt -run Sentences -update`" + `.

A *transient* failure is tried again until the retry window ends; a *permanent* one is a dead letter at once, to be replayed when its cause is gone. In the sentences {host} and {port} are the endpoint's, {timeout} its timeout, {status} the answer's status with its name, {location} where a redirect points, {until} and {from} a certificate's dates.

| kind | when | class | sentence |
|---|---|---|---|
`)
	for _, c := range causes {
		row := sentences[c]
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", row.kind, c, row.outcome, row.sentence)
	}
	const file = "../../docs/failures.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(file)
	if err != nil || string(stored) != page.String() {
		t.Errorf("%s is not current (%v); run go test ./internal/attempt -run Sentences -update", file, err)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "9999999999", "-5", "1.5", "abc", "99999999999999999999", "Mon, 30 Nov 2026 12:00:30 GMT", "Monday, 30-Nov-26 12:00:30 GMT", "Mon Nov 30 12:00:30 2026", "Mon, 30 Nov 0000 12:00:30 GMT", "１２０"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if d := parseRetryAfter(value, fuzzNow); d < 0 || d > maxRetryAfter {
			t.Errorf("%q asks for %v", value, d)
		}
	})
}
