// Package rawjson walks over JSON without changing it.
//
// A payload is the publisher's bytes: the ones that are signed, sent and shown. encoding/json
// can check them but hands back values, and printing those again drops white space, rounds
// numbers above 2^53 and rewrites "<" as an escape. This scanner checks the text (RFC 8259,
// well-formed UTF-8, bounded depth) in one pass and answers with sub-slices of it. It does not
// recurse, so 200,000 open brackets cost it nothing.
package rawjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many levels of arrays and objects one value may have.
const MaxDepth = 1000

// Fault is what is wrong with a text.
type Fault int

const (
	Malformed Fault = iota // not JSON
	Encoding               // not UTF-8
	TooDeep                // more than MaxDepth levels
)

// Error says what is wrong and where. It quotes nothing of the text but one character.
type Error struct {
	Fault  Fault
	Offset int // of the byte at fault
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

// Scanner reads one JSON text from its start. What it returns aliases the text.
type Scanner struct {
	data  []byte
	pos   int
	fresh bool // an array or object was just opened: no comma is due yet
}

// NewScanner returns a scanner at the beginning of data.
func NewScanner(data []byte) Scanner { return Scanner{data: data} }

// Kind returns the first character of the next value, which tells its type: one of {["tfn-0…9,
// or another one where no value follows, or 0 at the end.
func (s *Scanner) Kind() byte {
	s.space()
	return s.peek()
}

// Offset returns the position of the next byte to be read.
func (s *Scanner) Offset() int { return s.pos }

// Open reads the { or [ that begins an object or array.
func (s *Scanner) Open(bracket byte) error {
	if s.Kind() != bracket {
		return s.unexpected(map[byte]string{'{': "an object", '[': "an array"}[bracket])
	}
	s.pos++
	s.fresh = true
	return nil
}

// Member reads up to the next member's value and returns its name; more is false once the
// object has been closed.
func (s *Scanner) Member() (name []byte, more bool, err error) {
	start, literal, more, err := s.nameLiteral()
	if !more || err != nil {
		return nil, false, err
	}
	name = literal[1 : len(literal)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		text, ok := Text(literal)
		if !ok {
			return nil, false, &Error{Encoding, start, "half of a surrogate pair in a member's name"}
		}
		name = []byte(text)
	}
	return name, true, nil
}

// MemberLiteral is Member, with the name as it is written, quotes included. It also passes names
// that are no text.
func (s *Scanner) MemberLiteral() (name []byte, more bool, err error) {
	_, name, more, err = s.nameLiteral()
	return name, more, err
}

// nameLiteral reads a member's name and the colon.
func (s *Scanner) nameLiteral() (start int, literal []byte, more bool, err error) {
	if more, err := s.next('}'); !more {
		return 0, nil, false, err
	}
	s.space()
	start = s.pos
	if s.peek() != '"' {
		return 0, nil, false, s.unexpected("a member's name")
	}
	if err := s.str(); err != nil {
		return 0, nil, false, err
	}
	literal = s.data[start:s.pos]
	s.space()
	if s.peek() != ':' {
		return 0, nil, false, s.unexpected("a colon")
	}
	s.pos++
	return start, literal, true, nil
}

// Element reads up to the next element of an array; false once the array has been closed.
func (s *Scanner) Element() (bool, error) { return s.next(']') }

// next reads a comma if one is due, or the closing bracket.
func (s *Scanner) next(closing byte) (bool, error) {
	s.space()
	fresh := s.fresh
	s.fresh = false
	switch c := s.peek(); {
	case c == closing:
		s.pos++
		return false, nil
	case fresh:
		return true, nil
	case c == ',':
		s.pos++
		return true, nil
	}
	return false, s.unexpected(fmt.Sprintf("a comma or %q", closing))
}

// Value reads the next value whole and returns its bytes as they stand.
func (s *Scanner) Value() ([]byte, error) {
	s.space()
	start := s.pos
	if err := s.value(); err != nil {
		return nil, err
	}
	return s.data[start:s.pos:s.pos], nil
}

// End fails if anything but white space is left.
func (s *Scanner) End() error {
	if s.space(); s.pos < len(s.data) {
		return s.unexpected("the end")
	}
	return nil
}

// Text returns the text of a string literal that Value has read; false if there is none: an
// escape of half a surrogate pair (RFC 8259, section 8.2) stands for no character, and turning it
// into U+FFFD would store something else than was sent.
func Text(literal []byte) (string, bool) {
	inner := literal[1 : len(literal)-1]
	first := bytes.IndexByte(inner, '\\')
	if first < 0 {
		return string(inner), true
	}
	if !paired(inner[first:]) {
		return "", false
	}
	var text string
	_ = json.Unmarshal(literal, &text) // cannot fail: the literal is well-formed
	return text, true
}

// paired reports whether every escape of a surrogate has its other half.
func paired(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return true
		}
		b = b[i:]
		unit, isUnit := codeUnit(b)
		b = b[escape(b):]
		if !isUnit || !utf16.IsSurrogate(unit) {
			continue
		}
		low, isUnit := codeUnit(b)
		if !isUnit || utf16.DecodeRune(unit, low) == utf8.RuneError {
			return false
		}
		b = b[escape(b):]
	}
}

// codeUnit returns the UTF-16 code unit of a \u escape at the start of b.
func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

// value reads one value. Its stack is a bit per level: set for an object.
func (s *Scanner) value() error {
	var objects [MaxDepth/64 + 1]uint64
	depth := 0
	inObject := func() bool { return objects[depth>>6]&(1<<(depth&63)) != 0 }
	for {
		if s.space(); depth > 0 && inObject() {
			if err := s.name(); err != nil {
				return err
			}
		}
		opened, err := s.begin()
		if err != nil {
			return err
		}
		if opened != 0 {
			if depth++; depth > MaxDepth {
				return &Error{TooDeep, s.pos - 1, fmt.Sprintf("deeper than %d levels", MaxDepth)}
			}
			if bit := uint64(1) << (depth & 63); opened == '{' {
				objects[depth>>6] |= bit
			} else {
				objects[depth>>6] &^= bit
			}
			s.space()
			if c := s.peek(); c != '}' && c != ']' {
				continue
			} else if (c == '}') != inObject() {
				return s.unexpected("a value")
			}
		}
		for { // close what ends here
			if depth == 0 {
				return nil
			}
			s.space()
			c := s.peek()
			if c == ',' && opened == 0 {
				s.pos++
				break
			}
			if c != '}' && c != ']' || (c == '}') != inObject() {
				return s.unexpected("a comma or the end")
			}
			s.pos++
			depth--
			opened = 0
		}
	}
}

// name reads a member's name and its colon inside value.
func (s *Scanner) name() error {
	if s.peek() != '"' {
		return s.unexpected("a member's name")
	}
	if err := s.str(); err != nil {
		return err
	}
	if s.space(); s.peek() != ':' {
		return s.unexpected("a colon")
	}
	s.pos++
	return nil
}

// begin reads a scalar, or the bracket that opens an array or object, which it returns.
func (s *Scanner) begin() (opened byte, err error) {
	s.space()
	switch c := s.peek(); c {
	case '{', '[':
		s.pos++
		return c, nil
	case '"':
		return 0, s.str()
	case 't':
		return 0, s.literal("true")
	case 'f':
		return 0, s.literal("false")
	case 'n':
		return 0, s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return 0, s.number()
	}
	return 0, s.unexpected("a value")
}

func (s *Scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (s *Scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *Scanner) literal(word string) error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.unexpected(word)
		}
		s.pos++
	}
	return nil
}

func (s *Scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return nil
}

func (s *Scanner) digits() error {
	start := s.pos
	for '0' <= s.peek() && s.peek() <= '9' {
		s.pos++
	}
	if s.pos == start {
		return s.unexpected("a digit")
	}
	return nil
}

// The eight bytes of a word at once: which of them need a closer look inside a string.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// remarkable has the top bit of each byte set that is a control character, a quote, a backslash
// or not ASCII. Bits above the lowest one set can be wrong (a borrow); the lowest is exact.
func remarkable(w uint64) uint64 {
	return (w | (w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) & tops
}

// str reads a string literal.
func (s *Scanner) str() error {
	data, i := s.data, s.pos+1
	for {
		for i+8 <= len(data) {
			if marks := remarkable(binary.LittleEndian.Uint64(data[i:])); marks != 0 {
				i += bits.TrailingZeros64(marks) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			s.pos = len(data)
			return s.unexpected("the end of a string")
		}
		switch c := data[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			n := escape(data[i:])
			if n == 0 {
				return &Error{Malformed, i, "bad escape in a string"}
			}
			i += n
		case c < 0x20:
			return &Error{Malformed, i, "control character in a string"}
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				return &Error{Encoding, i, "invalid UTF-8"}
			}
			i += n
		}
	}
}

// escape returns the length of the escape sequence at the start of b, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// unexpected says what stands where something else should.
func (s *Scanner) unexpected(want string) error {
	if s.pos >= len(s.data) {
		return &Error{Malformed, len(s.data), "unexpected end, want " + want}
	}
	r, n := utf8.DecodeRune(s.data[s.pos:])
	if r == utf8.RuneError && n == 1 {
		return &Error{Encoding, s.pos, "invalid UTF-8"}
	}
	return &Error{Malformed, s.pos, fmt.Sprintf("unexpected %q, want %s", r, want)}
}
