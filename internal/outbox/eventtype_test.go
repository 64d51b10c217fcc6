package outbox

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The loop against the same rule as a regular expression.
func TestValidEventType_isTheGrammar(t *testing.T) {
	grammar := regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	check := func(s string) {
		if want := len(s) <= 128 && grammar.MatchString(s); ValidEventType(s) != want {
			t.Errorf("%q: %v, want %v", s, !want, want)
		}
	}
	for _, s := range []string{"", ".", "a", "a.", ".a", "a..b", "a.b", "A-1_x.y", "a b", "a\n", "a.*", "é", strings.Repeat("a", 128), strings.Repeat("a", 129)} {
		check(s)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(rapid.StringOfN(rapid.RuneFrom([]rune("aZ9_-..*é \n")), 0, 12, -1).Draw(t, "type"))
	})
}
