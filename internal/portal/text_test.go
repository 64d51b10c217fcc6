package portal

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlain_showsWhatCannotBeSeen(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"markup", `<script>alert("1")</script>`, `&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;`},
		{"a bidi override", "a\u202Eb", `a<span class="esc">⟨U+202E⟩</span>b`},
		{"no width", "a\u200Bb", `a<span class="esc">⟨U+200B⟩</span>b`},
		{"a control", "a\x00b\x1b[2J", `a<span class="esc">⟨U+0000⟩</span>b<span class="esc">⟨U+001B⟩</span>[2J`},
		{"bytes that are no text", "a\xffb", `a<span class="esc">⟨0xFF⟩</span>b`},
		{"lines", "a\n\tb", "a\n\tb"},
		{"right to left", "see מדריך. docs", `see <bdi dir="ltr">מדריך</bdi>. docs`},
		{"emoji of several parts", "👩‍💻", "👩‍💻"},
	} {
		if got := string(plain(row.in)); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// Whatever a stranger writes, no tag of theirs comes out, and what can be seen comes out whole.
func TestPlain_keepsAllTextAndLetsNoMarkupThrough(t *testing.T) {
	ours := regexp.MustCompile(`</?bdi[^>]*>|<span class="esc">|</span>`)
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.String().Draw(t, "text")
		left := ours.ReplaceAllString(string(plain(in)), "")
		if strings.ContainsAny(left, "<>") {
			t.Fatalf("markup is left of %q: %q", in, left)
		}
		visible := func(s string) string {
			return strings.Map(func(r rune) rune {
				if hidden(r) || r == '⟨' || r == '⟩' {
					return -1
				}
				return r
			}, s)
		}
		shown := regexp.MustCompile(`⟨(U\+|0x)[0-9A-F]+⟩`).ReplaceAllString(html.UnescapeString(left), "")
		if !strings.Contains(in, "⟨") && visible(shown) != visible(in) {
			t.Fatalf("%q became %q", in, shown)
		}
	})
}

func TestGrouped_separatesThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := capped(10000, true); got != "10k+" {
		t.Errorf("capped: %q", got)
	}
}

func TestSpell_usesTheTwoLargestUnits(t *testing.T) {
	for _, row := range []struct {
		d    time.Duration
		want string
	}{
		{143 * time.Millisecond, "143 ms"},
		{1600 * time.Millisecond, "1.6 s"},
		{12 * time.Second, "12 s"},
		{130 * time.Second, "2 min 10 s"},
		{9*time.Hour + 51*time.Minute, "9 h 51 min"},
		{76 * time.Hour, "3 d 4 h"},
		{time.Hour, "1 h"},
	} {
		if got := spell(row.d); got != row.want {
			t.Errorf("%v: %q, want %q", row.d, got, row.want)
		}
	}
}

func TestInZone_rewritesOurTimesAndNothingElse(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	moment := time.Date(2026, 11, 30, 20, 12, 31, 602e6, time.UTC)
	page := string(at(moment, "s")) + string(plain(`<time datetime="2026-11-30T20:12:31.602Z" data-f="s" title="x">y</time>`)) + `<span data-tz-name>UTC</span>`
	got := string(inZone([]byte(page), zone, moment))
	if !strings.Contains(got, ">1 Dec 01:42:31</time>") || !strings.Contains(got, "<span data-tz-name>UTC+5:30</span>") {
		t.Errorf("not in the zone: %s", got)
	}
	if !strings.Contains(got, "&lt;time datetime=&#34;2026-11-30T20:12:31.602Z") {
		t.Errorf("a stranger's text was rewritten: %s", got)
	}
}

func TestVolume_isLegible(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0 KiB", 372_736: "364 KiB", 1 << 20: "1.0 MiB", 1_288_490_189: "1.2 GiB", 3 << 50: "3072 TiB"} {
		if got := volume(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
