package signing

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Message is what is signed.
type Message struct {
	ID   string // the event's
	Type string
	At   time.Time // of the attempt
	URL  string
	Body []byte
	// EventMetadata wins over EndpointMetadata; both may be nil.
	EventMetadata, EndpointMetadata map[string]string
}

// template is a text with placeholders, ready to be filled in.
type template []part

// part is a literal, or what a placeholder stands for.
type part struct {
	literal string
	name    string // "": a literal
}

const metadataPrefix = "metadata."

// bodyPart and signaturePart stand where only some texts may have them.
const (
	bodyPart      = "body"
	signaturePart = "signature"
)

// parse reads a template in which the given special placeholder is allowed beside the common ones.
func parse(text, special string) (template, error) {
	var t template
	literal := func(s string) {
		if n := len(t) - 1; n >= 0 && t[n].name == "" {
			t[n].literal += s
		} else {
			t = append(t, part{literal: s})
		}
	}
	for text != "" {
		i := strings.IndexAny(text, "{}")
		switch {
		case i < 0:
			literal(text)
			return t, nil
		case i > 0:
			literal(text[:i])
			text = text[i:]
			continue
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			literal(text[:1])
			text = text[2:]
			continue
		case text[0] == '}':
			return nil, fmt.Errorf("has a } that closes nothing; write }} for a brace")
		}
		end := strings.IndexByte(text, '}')
		if end < 0 {
			return nil, fmt.Errorf("has a { that is not closed; write {{ for a brace")
		}
		name := text[1:end]
		switch name {
		case "timestamp", "timestamp_ms", "event_id", "event_type", "url", special:
		default:
			if key, ok := strings.CutPrefix(name, metadataPrefix); !ok || key == "" {
				return nil, fmt.Errorf("has no placeholder {%.40s}; there are %s", name, strings.Join([]string{"{" + special + "}", "{timestamp}", "{timestamp_ms}", "{event_id}", "{event_type}", "{url}", "{metadata.KEY}"}, " "))
			}
		}
		t = append(t, part{name: name})
		text = text[end+1:]
	}
	return t, nil
}

// has reports whether a placeholder occurs.
func (t template) has(name string) bool {
	for _, p := range t {
		if p.name == name {
			return true
		}
	}
	return false
}

// value is what a placeholder stands for; special ones are the caller's.
func (m *Message) value(name string) string {
	switch name {
	case "timestamp":
		return strconv.FormatInt(m.At.Unix(), 10)
	case "timestamp_ms":
		return strconv.FormatInt(m.At.UnixMilli(), 10)
	case "event_id":
		return m.ID
	case "event_type":
		return m.Type
	case "url":
		return m.URL
	}
	key := strings.TrimPrefix(name, metadataPrefix)
	if v, ok := m.EventMetadata[key]; ok {
		return v
	}
	return m.EndpointMetadata[key]
}

// header fills in a header's value. What a value must not hold in a header, a line break above
// all, becomes a space: metadata is whatever somebody wrote there.
func (t template) header(m *Message, signature string) string {
	return strings.TrimSpace(t.append(m, signature))
}

// append is header with the white space around it, for what is put behind another value.
func (t template) append(m *Message, signature string) string {
	var b strings.Builder
	for _, p := range t {
		switch p.name {
		case "":
			b.WriteString(p.literal)
		case signaturePart:
			b.WriteString(signature)
		default:
			b.WriteString(m.value(p.name))
		}
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, b.String())
}
