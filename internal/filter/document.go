package filter

import (
	"slices"

	"github.com/waybill-dev/waybill/internal/rawjson"
)

// Document is a payload that filters look into. It remembers what it has read, so it must not be
// used by two goroutines at once.
type Document struct {
	root *node // nil: it cannot be read
}

// Parse makes a document of a payload; nothing is looked at yet. One that is not JSON, or nested
// deeper than 1,000 levels, is what every filter wants: an event too many can be seen and
// ignored, one that was silently left out is lost to its endpoint.
func Parse(payload []byte) *Document {
	s := rawjson.NewScanner(payload)
	raw, err := s.Value()
	if err != nil || s.End() != nil {
		return &Document{}
	}
	return &Document{root: &node{raw: raw}}
}

// node is a value of the document, read as far as somebody looked at it.
type node struct {
	raw    []byte // the value as it stands
	listed bool   // an element of a list

	read     bool
	members  map[string]*node // of an object
	elements []*node          // of a list
	value    scalar
	isScalar bool
}

func (n *node) object() bool { return n.raw[0] == '{' }

// member returns a member of an object. Of a name that is given twice the last one counts, as it
// does for nearly every receiver.
func (n *node) member(name string) (*node, bool) {
	if !n.read {
		n.read = true
		n.members = map[string]*node{}
		s := rawjson.NewScanner(n.raw)
		_ = s.Open('{') // well-formed, as Parse has seen
		for {
			literal, more, err := s.MemberLiteral()
			if err != nil || !more {
				break
			}
			raw, _ := s.Value()
			if name, ok := rawjson.Text(literal); ok { // by a name that is no text nobody can ask for it
				n.members[name] = &node{raw: raw}
			}
		}
	}
	m, ok := n.members[name]
	return m, ok
}

// some reports whether the value, or an element where it is a list, is as wanted.
func (n *node) some(wanted func(*node) bool) bool {
	if n.raw[0] != '[' {
		return wanted(n)
	}
	if !n.read {
		n.read = true
		s := rawjson.NewScanner(n.raw)
		_ = s.Open('[')
		for {
			if more, err := s.Element(); err != nil || !more {
				break
			}
			raw, _ := s.Value()
			n.elements = append(n.elements, &node{raw: raw, listed: true})
		}
	}
	return slices.ContainsFunc(n.elements, wanted)
}

// scalar reads a string, a number, true, false or null; false of anything else, and of a string
// that is no text.
func (n *node) scalar() (scalar, bool) {
	if n.raw[0] == '{' || n.raw[0] == '[' {
		return scalar{}, false
	}
	if !n.read {
		n.read = true
		n.value, n.isScalar = readScalar(n.raw)
	}
	return n.value, n.isScalar
}
