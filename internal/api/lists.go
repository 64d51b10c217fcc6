package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// list is the envelope of every list.
type list[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor" doc:"Where to go on; null at the end. A page may be short, even empty, and have one"`
}

const (
	defaultLimit = 50
	maxLimit     = 250
)

// position is a place in a list: the id of the last row read.
type position [16]byte

func numberPosition(n int64) (p position) {
	binary.BigEndian.PutUint64(p[8:], uint64(n))
	return p
}

func (p position) number() int64 { return int64(binary.BigEndian.Uint64(p[8:])) }

// params reads a request's query. Its readers report what is wrong; err has the sum.
type params struct {
	q      *request
	values url.Values
	known  map[string]bool
	filter []string // what the list was asked for, in a fixed order
	items  []Item
	broken error // a fault that is no field's
}

func (q *request) params() *params {
	p := &params{q: q, known: map[string]bool{}}
	var err error
	if p.values, err = url.ParseQuery(q.URL.RawQuery); err != nil {
		p.broken = fail(CodeBadRequest, "the query of the address is not well-formed")
	}
	return p
}

func (p *params) bad(name, format string, args ...any) {
	p.items = append(p.items, Item{Path: name, Code: CodeInvalidField, Detail: fmt.Sprintf(format, args...)})
}

// all returns every value of a repeatable parameter, and makes it part of the filter.
func (p *params) all(name string) []string {
	p.known[name] = true
	values := p.values[name]
	if len(values) > 100 {
		p.bad(name, "at most 100 values")
		return nil
	}
	if slices.ContainsFunc(values, func(s string) bool { return !utf8.ValidString(s) }) {
		p.bad(name, "want UTF-8 text")
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	p.filter = append(p.filter, fmt.Sprintf("%s=%q", name, sorted))
	return values
}

// text returns the value of a parameter, "" if it is absent.
func (p *params) text(name string, max int) string {
	values := p.all(name)
	switch {
	case len(values) > 1:
		p.bad(name, "is given more than once")
	case len(values) == 1 && len(values[0]) > max:
		p.bad(name, "at most %d bytes", max)
	case len(values) == 1 && strings.ContainsRune(values[0], 0):
		p.bad(name, "must not contain U+0000")
	case len(values) == 1:
		return values[0]
	}
	return ""
}

// oneOf returns one of a few words, "" if the parameter is absent.
func (p *params) oneOf(name string, words ...string) string {
	s := p.text(name, 100)
	if s != "" && !slices.Contains(words, s) {
		p.bad(name, "want %s", quoted(words))
		return ""
	}
	return s
}

// eachOf returns every value of a repeatable parameter that takes a few words.
func (p *params) eachOf(name string, words ...string) []string {
	values := p.all(name)
	for _, s := range values {
		if !slices.Contains(words, s) {
			p.bad(name, "want %s", quoted(words))
			return nil
		}
	}
	return values
}

// eventTypes returns the values of event_type.
func (p *params) eventTypes() []string {
	values := p.all("event_type")
	for _, s := range values {
		if !outbox.ValidEventType(s) {
			p.bad("event_type", "want an event type")
			return nil
		}
	}
	return values
}

// time returns a moment, zero if the parameter is absent.
func (p *params) time(name string) time.Time {
	s := p.text(name, 64)
	if s == "" {
		return time.Time{}
	}
	// The + of an offset arrives as a space where nobody escaped it.
	t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(s, " ", "+"))
	if err != nil || t.Year() < 1970 {
		p.bad(name, "want a time such as 2026-11-30T12:00:00Z")
		return time.Time{}
	}
	return t.UTC()
}

// span returns from and to.
func (p *params) span() (from, to time.Time) {
	from, to = p.time("from"), p.time("to")
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		p.bad("to", "lies before from")
	}
	return from, to
}

// statusCode returns a status, or with class its first digit: 404, 5xx.
func (p *params) statusCode() (code int, class bool) {
	s := strings.ToLower(p.text("status_code", 3))
	if s == "" {
		return 0, false
	}
	digits, class := strings.CutSuffix(s, "xx")
	n, err := strconv.Atoi(digits)
	if err != nil || class && (n < 1 || n > 9) || !class && (n < 100 || n > 999) {
		p.bad("status_code", "want a status such as 404, or a class such as 5xx")
		return 0, false
	}
	return n, class
}

// id returns a typed id; zero if the parameter is absent.
func id[ID interface{ ~[16]byte }](p *params, name string, parse func(string) (ID, error)) ID {
	s := p.text(name, 64)
	if s == "" {
		var none ID
		return none
	}
	v, err := parse(s)
	if err != nil {
		p.bad(name, "is not an id of the right kind")
	}
	return v
}

// page reads limit, order and cursor. It comes after the filters, to which a cursor is bound.
func (p *params) page() (outbox.Page, position) {
	page := outbox.Page{Limit: defaultLimit}
	page.Ascending = p.oneOf("order", "desc", "asc") == "asc"
	p.known["limit"], p.known["cursor"] = true, true
	if limits := p.values["limit"]; len(limits) > 0 {
		n, err := strconv.Atoi(limits[0])
		if err != nil || len(limits) > 1 || n < 1 || n > maxLimit {
			p.bad("limit", "want a number from 1 to %d", maxLimit)
		} else {
			page.Limit = n
		}
	}
	var after position
	if cursors := p.values["cursor"]; len(cursors) > 0 {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(cursors[0])
		if err == nil && len(cursors) == 1 && len(raw) == sumSize+len(after) {
			after = position(raw[sumSize:])
		}
		if sum := p.sum(after); after == (position{}) || !bytes.HasPrefix(raw, sum[:]) {
			p.broken = fail(CodeCursorInvalid, "the cursor is damaged or not from this list; start it again without one")
		}
	}
	return page, after
}

const sumSize = 8

// sum is the part of a cursor that shows damage, and that it came from another list: it covers
// path, filters, order, whose eyes it was for, and the position. It is no secret: a forged cursor
// leads to a place in a list the caller may read anyway.
func (p *params) sum(at position) [sumSize]byte {
	h := sha256.New()
	fmt.Fprintf(h, "2\n%s\n%s\n%q\n", p.q.URL.Path, p.q.who.Tenant, p.filter)
	h.Write(at[:])
	return [sumSize]byte(h.Sum(nil))
}

// cursor makes the cursor that goes on after a position.
func (p *params) cursor(after position) *string {
	sum := p.sum(after)
	return new(base64.RawURLEncoding.EncodeToString(append(sum[:], after[:]...)))
}

// err returns everything that is wrong with the query, names nobody asked for included: a
// mistyped filter must not widen a list in silence.
func (p *params) err() error {
	if !p.q.lenient {
		for name := range p.values {
			if !p.known[name] {
				p.items = append(p.items, Item{Path: name, Code: CodeUnknownField, Detail: "there is no such query parameter"})
			}
		}
		slices.SortStableFunc(p.items, func(a, b Item) int { return strings.Compare(a.Path, b.Path) })
	}
	switch {
	case p.broken != nil:
		return p.broken
	case len(p.items) > 0:
		return failItems(p.items)
	}
	return nil
}

// oneMore asks for a row more than is shown, which tells whether the list goes on.
func oneMore(page outbox.Page) outbox.Page {
	page.Limit++
	return page
}

// listed answers with a page of rows that were read with oneMore. show gives a row's place in the
// list, and what is shown of it.
func listed[R, V any](p *params, page outbox.Page, rows []R, err error, show func(*R) (position, V)) (*answer, error) {
	if err != nil {
		return nil, err
	}
	list := list[V]{Data: []V{}}
	var last position
	for i := range rows {
		if i == page.Limit {
			list.NextCursor = p.cursor(last)
			break
		}
		var view V
		last, view = show(&rows[i])
		list.Data = append(list.Data, view)
	}
	return ok(list)
}
