package signature

import (
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// plan is an HMAC scheme made ready: what it hashes, and how its header is read.
type plan struct {
	of         HMAC
	hash       crypto.Hash
	tolerance  time.Duration
	signed     []piece
	items      []item // of the form, in its order
	separators string // between the items of a header
	timed      bool   // a timestamp is signed
	identified bool   // an id is signed
}

// piece is a part of what is hashed: literal text, or what the name stands for.
type piece struct {
	literal []byte
	name    string // "id", "timestamp", "url", "body"
}

// item is one entry of a header: a prefix, and what follows it.
type item struct {
	prefix string
	name   string // "hex", "base64", "timestamp"
}

// arrived is what a request's headers say.
type arrived struct {
	id         string
	timestamp  string
	at         time.Time
	signatures [maxSignatures][]byte // decoded
	n          int
	buf        [2 * 64]byte // room for the first of them
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("signature: HMAC scheme: "+format, args...)
}

func (s HMAC) compile() (*plan, error) {
	p := &plan{of: s, hash: s.Hash, tolerance: s.Tolerance}
	if p.hash == 0 {
		p.hash = crypto.SHA256
	}
	switch {
	case !p.hash.Available() || p.hash.Size() > 64:
		return nil, wrong("hash %v is not available", p.hash)
	case p.tolerance == 0:
		p.tolerance = DefaultTolerance
	case p.tolerance < 0:
		return nil, wrong("the tolerance is negative")
	}
	if s.Header == "" {
		return nil, wrong("Header is not set")
	}
	if err := p.compileSigned(); err != nil {
		return nil, err
	}
	if err := p.compileForm(); err != nil {
		return nil, err
	}
	inForm := strings.Contains(s.Form, "{timestamp}")
	switch {
	case inForm && s.TimeHeader != "":
		return nil, wrong("the timestamp is in Form and in TimeHeader")
	case p.timed && !inForm && s.TimeHeader == "":
		return nil, wrong("{timestamp} is signed, but neither Form nor TimeHeader says where it is")
	case !p.timed && (inForm || s.TimeHeader != ""):
		return nil, wrong("the timestamp is not signed; anybody could change it")
	case p.identified != (s.IDHeader != ""):
		return nil, wrong("{id} in Signed and IDHeader belong together")
	}
	return p, nil
}

func (p *plan) compileSigned() error {
	rest, bodies := p.of.Signed, 0
	for rest != "" {
		before, after, found := strings.Cut(rest, "{")
		if before != "" {
			p.signed = append(p.signed, piece{literal: []byte(before)})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return wrong("Signed has a { without its }")
		}
		switch name {
		case "id":
			p.identified = true
		case "timestamp":
			p.timed = true
		case "body":
			bodies++
		case "url":
		default:
			return wrong("Signed has {%s}; it may have {id}, {timestamp}, {url} and {body}", name)
		}
		p.signed = append(p.signed, piece{name: name})
		rest = after
	}
	if bodies != 1 {
		return wrong("Signed must have {body}, once")
	}
	return nil
}

func (p *plan) compileForm() error {
	form := p.of.Form
	separator := ""
	for _, s := range []string{",", ";", " "} {
		if strings.Contains(form, s) {
			separator = s
			break
		}
	}
	// A form of one item has no separator of its own. Neither a signature nor a proxy that joins
	// lines needs more than these.
	p.separators = ", "
	entries := []string{form}
	if separator != "" {
		p.separators = separator
		if separator != " " {
			p.separators += " ,"
		}
		entries = strings.Split(form, separator)
	}
	signatures := 0
	for _, entry := range entries {
		prefix, name, _ := strings.Cut(strings.TrimSpace(entry), "{")
		name, after, closed := strings.Cut(name, "}")
		if !closed || after != "" {
			return wrong("Form has %q; each entry is text and then {hex}, {base64} or {timestamp}", entry)
		}
		switch name {
		case "hex", "base64":
			signatures++
		case "timestamp":
		default:
			return wrong("Form has {%s}; it may have {hex} or {base64}, and {timestamp}", name)
		}
		p.items = append(p.items, item{prefix, name})
	}
	if signatures != 1 {
		return wrong("Form must have {hex} or {base64}, once")
	}
	return nil
}

// read takes id, time and signatures from the headers.
func (p *plan) read(r *Request) (*arrived, error) {
	in := &arrived{}
	if err := p.readHeader(r.Header, in); err != nil {
		return nil, err
	}
	s := &p.of
	if p.identified {
		id, err := one(r.Header, s.IDHeader)
		if err != nil {
			return nil, err
		}
		if err := checkID(id, s.IDHeader); err != nil {
			return nil, err
		}
		in.id = id
	}
	if !p.timed {
		return in, nil
	}
	where := s.Header
	if s.TimeHeader != "" {
		timestamp, err := one(r.Header, s.TimeHeader)
		if err != nil {
			return nil, err
		}
		in.timestamp, where = timestamp, s.TimeHeader
	} else if in.timestamp == "" {
		return nil, refuse(Malformed, "there is no timestamp in "+where)
	}
	n, err := parseTimestamp(in.timestamp)
	if err != nil {
		return nil, refuse(Malformed, "the timestamp in "+where+" is not a plain decimal number")
	}
	if in.at = time.Unix(n, 0); s.Milliseconds {
		in.at = time.UnixMilli(n)
	}
	return in, nil
}

func (p *plan) readHeader(header http.Header, in *arrived) error {
	name := p.of.Header
	total, present := 0, false
	for _, line := range values(header, name) {
		total += len(line)
		present = present || strings.TrimSpace(line) != ""
		if total > maxHeaderBytes {
			return refuse(Malformed, name+" is too long")
		}
		for line != "" {
			entry := line
			if cut := strings.IndexAny(line, p.separators); cut >= 0 {
				entry, line = line[:cut], line[cut+1:]
			} else {
				line = ""
			}
			if err := p.readItem(entry, in); err != nil {
				return err
			}
		}
	}
	switch {
	case !present:
		return refuse(Missing, "there is no "+name)
	case in.n == 0:
		return refuse(Malformed, "no signature in "+name+" is written as "+p.of.Form)
	}
	return nil
}

func (p *plan) readItem(entry string, in *arrived) error {
	for _, it := range p.items {
		text, ok := strings.CutPrefix(entry, it.prefix)
		if !ok || text == "" {
			continue
		}
		if it.name == "timestamp" {
			if in.timestamp != "" && in.timestamp != text {
				return refuse(Malformed, p.of.Header+" has two timestamps")
			}
			in.timestamp = text
			continue
		}
		if in.n == maxSignatures {
			return refuse(Malformed, p.of.Header+" has more than "+strconv.Itoa(maxSignatures)+" signatures")
		}
		// One that cannot be read is no signature; another may be.
		if sig, ok := in.decode(it.name, text, p.hash.Size()); ok {
			in.signatures[in.n] = sig
			in.n++
		}
	}
	return nil
}

// decode reads one signature of the hash's size.
func (in *arrived) decode(encoding, text string, size int) ([]byte, bool) {
	buf := in.buf[min(in.n, 1)*64:]
	if in.n > 1 {
		buf = make([]byte, 64)
	}
	if encoding == "hex" {
		if len(text) != hex.EncodedLen(size) {
			return nil, false
		}
		n, err := hex.Decode(buf, []byte(text))
		return buf[:n:n], err == nil
	}
	if len(text) != base64.StdEncoding.EncodedLen(size) {
		return nil, false
	}
	raw, err := base64.StdEncoding.Strict().AppendDecode(buf[:0], []byte(text))
	return raw, err == nil && len(raw) == size
}

// parts lists what is hashed.
func (p *plan) parts(dst [][]byte, r *Request, in *arrived) [][]byte {
	for _, piece := range p.signed {
		switch piece.name {
		case "":
			dst = append(dst, piece.literal)
		case "id":
			dst = append(dst, []byte(in.id))
		case "timestamp":
			dst = append(dst, []byte(in.timestamp))
		case "url":
			dst = append(dst, []byte(r.URL))
		case "body":
			dst = append(dst, r.Body)
		}
	}
	return dst
}

// write is the header's value.
func (p *plan) write(timestamp string, signatures [][]byte) string {
	var entries []string
	for _, it := range p.items {
		switch it.name {
		case "timestamp":
			entries = append(entries, it.prefix+timestamp)
		case "hex":
			for _, sig := range signatures {
				entries = append(entries, it.prefix+hex.EncodeToString(sig))
			}
		case "base64":
			for _, sig := range signatures {
				entries = append(entries, it.prefix+base64.StdEncoding.EncodeToString(sig))
			}
		}
	}
	return strings.Join(entries, p.separators[:1])
}
