package filter

import (
	"fmt"

	"github.com/waybill-dev/waybill/internal/rawjson"
)

// Bounds of a filter.
const (
	MaxBytes      = 16 << 10
	MaxDepth      = 20
	MaxConditions = 500 // every comparison, and every value of a list
)

// Error says what is wrong with a filter, and where.
type Error struct {
	Path   string // "data.amount.$gt"; "" for the whole
	Detail string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return e.Path + ": " + e.Detail
}

// Filter is a compiled filter. It does not change and is safe for concurrent use.
type Filter struct {
	root condition
}

// condition is one thing that must hold of a value. present is false where there is none.
type condition interface {
	holds(n *node, present bool) bool
}

// Compile reads a filter. The error is an *Error.
func Compile(text []byte) (*Filter, error) {
	if len(text) > MaxBytes {
		return nil, &Error{Detail: fmt.Sprintf("at most %d bytes", MaxBytes)}
	}
	s := rawjson.NewScanner(text)
	raw, err := s.Value()
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, &Error{Detail: "is not JSON"}
	}
	if raw[0] != '{' {
		return nil, &Error{Detail: "want an object"}
	}
	c := compiler{}
	root, err := c.object("", raw, 1)
	if err != nil {
		return nil, err
	}
	return &Filter{root}, nil
}

// Matches reports whether the document is one the filter wants.
func (f *Filter) Matches(d *Document) bool { return d.root == nil || f.root.holds(d.root, true) }

type compiler struct {
	conditions int
}

func (c *compiler) count(path string) error {
	if c.conditions++; c.conditions > MaxConditions {
		return &Error{path, fmt.Sprintf("the filter has more than %d conditions", MaxConditions)}
	}
	return nil
}

// value compiles what a member must be.
func (c *compiler) value(path string, raw []byte, depth int) (condition, error) {
	switch raw[0] {
	case '{':
		return c.object(path, raw, depth)
	case '[':
		return c.oneOf(path, raw)
	}
	return c.equal(path, raw)
}

// object compiles an object: operators for the value itself, or members of it.
func (c *compiler) object(path string, raw []byte, depth int) (condition, error) {
	if depth > MaxDepth {
		return nil, &Error{path, fmt.Sprintf("is nested deeper than %d levels", MaxDepth)}
	}
	var operators every
	var members fields
	seen := map[string]bool{}
	s := rawjson.NewScanner(raw)
	_ = s.Open('{') // well-formed, as Compile has seen
	for {
		rawName, more, err := s.Member()
		if err != nil {
			return nil, &Error{path, "a name " + noText}
		}
		if !more {
			break
		}
		name := string(rawName)
		value, _ := s.Value()
		at := name
		if path != "" {
			at = path + "." + name
		}
		if seen[name] {
			return nil, &Error{at, "is given twice"}
		}
		seen[name] = true
		if name != "" && name[0] == '$' {
			op, err := c.operator(name, at, value, depth)
			if err != nil {
				return nil, err
			}
			operators = append(operators, op)
			continue
		}
		inner, err := c.value(at, value, depth+1)
		if err != nil {
			return nil, err
		}
		members = append(members, field{name, inner})
	}
	switch {
	case len(members) == 0 && len(operators) > 0:
		return operators, nil
	case len(operators) == 0:
		return members, c.count(path)
	}
	return append(operators, members), nil
}

func (c *compiler) operator(name, path string, raw []byte, depth int) (condition, error) {
	switch name {
	case "$eq":
		return c.equal(path, raw)
	case "$ne":
		inner, err := c.equal(path, raw)
		return not{inner}, err
	case "$gt", "$gte", "$lt", "$lte":
		want, err := c.scalar(path, raw)
		if err == nil && want.kind != number && want.kind != text {
			err = &Error{path, "want a number or a string"}
		}
		return compare{name, want}, err
	case "$in":
		return c.oneOf(path, raw)
	case "$nin":
		inner, err := c.oneOf(path, raw)
		return not{inner}, err
	case "$exists":
		if err := c.count(path); err != nil {
			return nil, err
		}
		if s := string(raw); s != "true" && s != "false" {
			return nil, &Error{path, "want true or false"}
		}
		return exists(raw[0] == 't'), nil
	case "$startsWith", "$endsWith", "$contains":
		want, err := c.scalar(path, raw)
		if err == nil && want.kind != text && name != "$contains" {
			err = &Error{path, "want a string"}
		}
		return part{name, want}, err
	case "$and", "$or":
		list, err := c.list(path, raw, depth)
		if name == "$and" {
			return every(list), err
		}
		return either(list), err
	case "$not":
		inner, err := c.value(path, raw, depth+1)
		return not{inner}, err
	}
	return nil, &Error{path, "there is no such operator; see the list of operators"}
}

// list compiles the filters of $and and $or.
func (c *compiler) list(path string, raw []byte, depth int) (list []condition, err error) {
	if raw[0] != '[' {
		return nil, &Error{path, "want a list of filters"}
	}
	err = elements(path, raw, func(at string, raw []byte) error {
		inner, err := c.value(at, raw, depth+1)
		list = append(list, inner)
		return err
	})
	if err == nil && len(list) == 0 {
		err = &Error{path, "want at least one filter"}
	}
	return list, err
}

func (c *compiler) equal(path string, raw []byte) (condition, error) {
	want, err := c.scalar(path, raw)
	return oneOf{want}, err
}

func (c *compiler) oneOf(path string, raw []byte) (condition, error) {
	var list oneOf
	if raw[0] != '[' {
		return nil, &Error{path, "want a list of values"}
	}
	err := elements(path, raw, func(at string, raw []byte) error {
		want, err := c.scalar(at, raw)
		list = append(list, want)
		return err
	})
	if err == nil && len(list) == 0 {
		err = &Error{path, "want at least one value"}
	}
	return list, err
}

func elements(path string, raw []byte, each func(at string, raw []byte) error) error {
	s := rawjson.NewScanner(raw)
	_ = s.Open('[')
	for i := 0; ; i++ {
		if more, err := s.Element(); err != nil || !more {
			return nil
		}
		value, _ := s.Value()
		if err := each(fmt.Sprintf("%s[%d]", path, i), value); err != nil {
			return err
		}
	}
}

const noText = "holds half of a surrogate pair, which is no character"

// scalar reads a value to compare with.
func (c *compiler) scalar(path string, raw []byte) (scalar, error) {
	if err := c.count(path); err != nil {
		return scalar{}, err
	}
	if raw[0] == '{' || raw[0] == '[' {
		return scalar{}, &Error{path, "want a string, a number, true, false or null"}
	}
	v, ok := readScalar(raw)
	if !ok {
		return scalar{}, &Error{path, noText}
	}
	return v, nil
}
