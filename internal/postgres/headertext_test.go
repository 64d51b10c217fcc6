package postgres

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Whatever a stranger's server answers, what is written down reads as encoding/json would have it.
func TestHeaderText_readsAsWritten(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[ -~]*`), rapid.String(), rapid.SampledFrom([]string{"", `"`, `a\b`, "\x00", "\x7f", "\u2028", "<&>", "a\xffb"}))
	rapid.Check(t, func(t *rapid.T) {
		var headers []outbox.Header
		for range rapid.IntRange(1, 4).Draw(t, "headers") {
			headers = append(headers, outbox.Header{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		theirs, err := json.Marshal(headers)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []outbox.Header
		if err := json.Unmarshal([]byte(headerText(headers)), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(theirs, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
	if got := headerText(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
