package filter

import (
	"cmp"
	"slices"
	"strings"
)

// every holds where each of its conditions does; either where one of them does.
type (
	every  []condition
	either []condition
)

func (a every) holds(n *node, present bool) bool {
	for _, c := range a {
		if !c.holds(n, present) {
			return false
		}
	}
	return true
}

func (a either) holds(n *node, present bool) bool {
	return slices.ContainsFunc(a, func(c condition) bool { return c.holds(n, present) })
}

type not struct{ condition }

func (c not) holds(n *node, present bool) bool { return !c.condition.holds(n, present) }

type exists bool

func (c exists) holds(_ *node, present bool) bool { return bool(c) == present }

// fields are members that must hold, of an object or of one element of a list.
type fields []field

type field struct {
	name string
	is   condition
}

func (f fields) holds(n *node, present bool) bool {
	return present && n.some(func(n *node) bool {
		if !n.object() {
			return false
		}
		for _, m := range f {
			inner, ok := n.member(m.name)
			if !m.is.holds(inner, ok) {
				return false
			}
		}
		return true
	})
}

// oneOf holds where the value equals one of the list.
type oneOf []scalar

func (list oneOf) holds(n *node, present bool) bool {
	return present && n.some(func(n *node) bool {
		have, ok := n.scalar()
		return ok && slices.ContainsFunc(list, have.equals)
	})
}

// compare holds where the value is of the same kind and greater or less.
type compare struct {
	operator string
	with     scalar
}

func (c compare) holds(n *node, present bool) bool {
	return present && n.some(func(n *node) bool {
		have, ok := n.scalar()
		if !ok || have.kind != c.with.kind {
			return false
		}
		var order int
		if have.kind == number {
			order = have.number.compare(c.with.number)
		} else {
			order = cmp.Compare(have.text, c.with.text)
		}
		switch c.operator {
		case "$gt":
			return order > 0
		case "$gte":
			return order >= 0
		case "$lt":
			return order < 0
		}
		return order <= 0
	})
}

// part holds where a string begins with, ends with or contains another, or a list contains a value.
type part struct {
	operator string
	of       scalar
}

func (c part) holds(n *node, present bool) bool {
	return present && n.some(func(n *node) bool {
		have, ok := n.scalar()
		if !ok {
			return false
		}
		if have.kind != text || c.of.kind != text {
			return c.operator == "$contains" && n.listed && have.equals(c.of)
		}
		switch c.operator {
		case "$startsWith":
			return strings.HasPrefix(have.text, c.of.text)
		case "$endsWith":
			return strings.HasSuffix(have.text, c.of.text)
		}
		if n.listed {
			return have.text == c.of.text
		}
		return strings.Contains(have.text, c.of.text)
	})
}
