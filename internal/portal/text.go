package portal

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain shows a stranger's text as it is, escaped, with what cannot be seen made visible: controls
// that turn the direction of text, characters without width, other controls. They appear as
// marked escapes, so that text cannot pretend to be other text. Right-to-left parts are kept apart
// from what surrounds them.
func plain(s string) template.HTML {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	turned := false
	end := func() {
		if turned {
			b.WriteString("</bdi>")
			turned = false
		}
	}
	for i, w := 0, 0; i < len(s); i += w {
		var r rune
		r, w = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && w == 1:
			end()
			fmt.Fprintf(&b, `<span class="esc">⟨0x%02X⟩</span>`, s[i])
		case hidden(r):
			end()
			fmt.Fprintf(&b, `<span class="esc">⟨U+%04X⟩</span>`, r)
		case rightToLeft(r):
			if !turned {
				b.WriteString(`<bdi dir="ltr">`)
				turned = true
			}
			b.WriteRune(r)
		default:
			if !unicode.IsSpace(r) {
				end()
			}
			template.HTMLEscape(&b, []byte(s[i:i+w]))
		}
	}
	end()
	return template.HTML(b.String())
}

// hidden reports whether a character cannot be seen, or changes how others are.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\r', unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
		return true
	case r == 0x200D || r == 0xFE0F: // they join emoji and choose their looks
		return false
	}
	return unicode.Is(unicode.Cf, r) || r == 0x2028 || r == 0x2029 || r == 0x3164 || r == 0x115F || r == 0x1160
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko)
}

// grouped writes a whole number with its thousands apart.
func grouped(n any) string {
	var s string
	switch n := n.(type) {
	case int:
		s = strconv.Itoa(n)
	case int64:
		s = strconv.FormatInt(n, 10)
	default:
		return fmt.Sprint(n)
	}
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// capped writes a count that stopped at a bound: 10k+.
func capped(n int, more bool) string {
	switch {
	case !more:
		return grouped(n)
	case n >= 1000 && n%1000 == 0:
		return strconv.Itoa(n/1000) + "k+"
	}
	return grouped(n) + "+"
}

func byteCount(n any) string {
	s := grouped(n)
	if s == "1" {
		return "1 byte"
	}
	return s + " bytes"
}

// volume writes how much is stored, in the largest unit that leaves a whole one: 1.2 GiB.
func volume(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, units[unit])
	}
	return fmt.Sprintf("%.0f %s", v, units[unit])
}

// some writes a count of things: 1 delivery, 2 deliveries.
func some(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// hostOf is the part of a URL that stands for it in a list.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw
	}
	return u.Host
}

// restOf is what follows the host.
func restOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	rest := raw[strings.Index(raw, u.Host)+len(u.Host):]
	if rest == "/" {
		return ""
	}
	return rest
}

// short is an id with its middle left out.
func short(id string) string {
	if len(id) <= 20 {
		return id
	}
	return id[:12] + "…" + id[len(id)-4:]
}

// sentence begins with a capital and ends with a full stop, as what the API says does not.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	first, w := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(first)) + s[w:]
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}
