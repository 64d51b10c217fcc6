package filter

import (
	"math"
	"strings"

	"github.com/waybill-dev/waybill/internal/rawjson"
)

type kind byte

const (
	text kind = iota
	number
	word // true, false, null
)

// scalar is a value that can be compared.
type scalar struct {
	kind   kind
	text   string // of a string; the literal of a word
	number decimal
}

// readScalar reads a literal; false for a string that stands for no text.
func readScalar(raw []byte) (scalar, bool) {
	switch raw[0] {
	case '"':
		s, ok := rawjson.Text(raw)
		return scalar{kind: text, text: s}, ok
	case 't', 'f', 'n':
		return scalar{kind: word, text: string(raw)}, true
	}
	return scalar{kind: number, number: readDecimal(string(raw))}, true
}

func (s scalar) equals(o scalar) bool {
	if s.kind != o.kind {
		return false
	}
	if s.kind == number {
		return s.number.compare(o.number) == 0
	}
	return s.text == o.text
}

// decimal is a number of any size, exactly: 0.digits × 10^exponent. The digits have no zero at
// either end, so that equal numbers are equal values; zero has none.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// maxExponent is where exponents stop being told apart. No payload is long enough for the point to
// move them anywhere near it by position alone.
const maxExponent = math.MaxInt64 / 4

// readDecimal reads a JSON number.
func readDecimal(s string) decimal {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	stripped := strings.TrimLeft(digits, "0")
	d.digits = strings.TrimRight(stripped, "0")
	if d.digits == "" {
		return decimal{} // -0 is 0
	}
	d.exponent = int64(len(whole)) - int64(len(digits)-len(stripped)) + readExponent(exponent)
	return d
}

// readExponent reads the part after the e, and stops counting where nobody can tell any more.
func readExponent(s string) int64 {
	s, negative := strings.CutPrefix(s, "-")
	s = strings.TrimPrefix(s, "+")
	var n int64
	for i := range len(s) {
		if n > maxExponent/10-1 {
			n = maxExponent
			break
		}
		n = n*10 + int64(s[i]-'0')
	}
	if negative {
		return -n
	}
	return n
}

// compare orders two numbers by value.
func (d decimal) compare(o decimal) int {
	if sign := d.sign() - o.sign(); sign != 0 || d.sign() == 0 {
		return sign
	}
	order := 0
	switch {
	case d.exponent != o.exponent:
		order = 1
		if d.exponent < o.exponent {
			order = -1
		}
	default:
		order = strings.Compare(d.digits, o.digits) // fractions of the same place: as words in a dictionary
	}
	if d.negative {
		return -order
	}
	return order
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}
