package receive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// pointer is a JSON pointer (RFC 6901) made ready: its reference tokens, unescaped.
type pointer []string

func parsePointer(text string) (pointer, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("JSON pointer %q does not begin with /", text)
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// text finds a string or a number in a JSON document without building the rest of it: this is done
// for every request. What is no JSON has nothing in it. Of a repeated name the last counts, as in
// encoding/json, which the handler will use.
func (p pointer) text(doc []byte) (string, bool) {
	value, ok := p.find(doc)
	if !ok || len(value) == 0 {
		return "", false
	}
	switch c := value[0]; {
	case c == '"':
		if bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
			return string(value[1 : len(value)-1]), true
		}
		var s string
		if json.Unmarshal(value, &s) != nil {
			return "", false
		}
		return s, true
	case c == '-' || c >= '0' && c <= '9':
		return string(value), true
	}
	return "", false
}

// find is the value's bytes.
func (p pointer) find(doc []byte) ([]byte, bool) {
	s := scanner{doc, 0}
	for _, token := range p {
		if !s.enter(token) {
			return nil, false
		}
	}
	s.space()
	start := s.at
	if !s.skip() {
		return nil, false
	}
	return doc[start:s.at], true
}

// scanner walks over JSON and trusts nothing of it: every method says false at what it does not
// understand.
type scanner struct {
	doc []byte
	at  int
}

func (s *scanner) space() {
	for s.at < len(s.doc) && (s.doc[s.at] == ' ' || s.doc[s.at] == '\n' || s.doc[s.at] == '\t' || s.doc[s.at] == '\r') {
		s.at++
	}
}

func (s *scanner) next(c byte) bool {
	s.space()
	if s.at < len(s.doc) && s.doc[s.at] == c {
		s.at++
		return true
	}
	return false
}

// enter moves to the member or element that token names.
func (s *scanner) enter(token string) bool {
	if s.next('[') {
		return s.enterElement(token)
	}
	if !s.next('{') || s.next('}') {
		return false
	}
	found := -1
	for {
		s.space()
		start := s.at
		if !s.str() {
			return false
		}
		name := s.doc[start:s.at]
		if !s.next(':') {
			return false
		}
		if sameName(name, token) {
			found = s.at
		}
		if !s.skip() {
			return false
		}
		if !s.next(',') {
			break
		}
	}
	if !s.next('}') || found < 0 {
		return false
	}
	s.at = found
	return true
}

func sameName(quoted []byte, token string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == token
	}
	var name string
	return json.Unmarshal(quoted, &name) == nil && name == token
}

func (s *scanner) enterElement(token string) bool {
	if token == "" || len(token) > 6 || len(token) > 1 && token[0] == '0' {
		return false
	}
	index := 0
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return false
		}
		index = index*10 + int(token[i]-'0')
	}
	for ; index > 0; index-- {
		if !s.skip() || !s.next(',') {
			return false
		}
	}
	s.space()
	return s.at < len(s.doc) && s.doc[s.at] != ']'
}

// skip passes over one value. Nesting is counted, not recursed into: a stranger's brackets must not
// grow the stack.
func (s *scanner) skip() bool {
	var open []byte
	for {
		s.space()
		if s.at >= len(s.doc) {
			return false
		}
		switch c := s.doc[s.at]; c {
		case '{', '[':
			if len(open) >= 10_000 {
				return false
			}
			open = append(open, c+2) // '{'+2 == '}', '['+2 == ']'
			s.at++
			if s.next(c + 2) {
				open = open[:len(open)-1]
				break
			}
			if c == '{' && !s.name() {
				return false
			}
			continue
		case '"':
			if !s.str() {
				return false
			}
		default:
			if !s.word() {
				return false
			}
		}
		// A value has ended; so may what it is in.
		for len(open) > 0 {
			if s.next(',') {
				if open[len(open)-1] == '}' && !s.name() {
					return false
				}
				break
			}
			if !s.next(open[len(open)-1]) {
				return false
			}
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return true
		}
	}
}

func (s *scanner) name() bool {
	s.space()
	return s.str() && s.next(':')
}

func (s *scanner) str() bool {
	if s.at >= len(s.doc) || s.doc[s.at] != '"' {
		return false
	}
	for i := s.at + 1; ; {
		n := bytes.IndexByte(s.doc[i:], '"')
		if n < 0 {
			return false
		}
		end := i + n
		escapes := 0
		for end-1-escapes >= i && s.doc[end-1-escapes] == '\\' {
			escapes++
		}
		i = end + 1
		if escapes%2 == 0 { // else the quote is part of the text
			s.at = i
			return true
		}
	}
}

// word is a number, true, false or null; whether it is spelled right is for who decodes it to say.
func (s *scanner) word() bool {
	start := s.at
	for s.at < len(s.doc) {
		c := s.doc[s.at]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E' {
			s.at++
			continue
		}
		break
	}
	return s.at > start
}

// JSONArray is a Split for a body that is (pointer "") or holds a JSON array. The elements' bytes
// are as they came, without the white space around them.
func JSONArray(at string) func(body []byte) ([][]byte, error) {
	p, wrong := parsePointer(at)
	return func(body []byte) ([][]byte, error) {
		if wrong != nil {
			return nil, wrong
		}
		if !json.Valid(body) {
			return nil, fmt.Errorf("the body is not JSON")
		}
		array, ok := p.find(body)
		s := scanner{array, 0}
		if !ok || !s.next('[') {
			return nil, fmt.Errorf("there is no array at %q", at)
		}
		var elements [][]byte
		if s.next(']') {
			return nil, nil
		}
		for {
			s.space()
			start := s.at
			if !s.skip() {
				return nil, fmt.Errorf("the array at %q cannot be read", at)
			}
			elements = append(elements, array[start:s.at:s.at])
			if !s.next(',') {
				return elements, nil
			}
		}
	}
}
