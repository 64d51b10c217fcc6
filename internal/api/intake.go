package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/rawjson"
)

// intake reads events out of a publish request in one pass over its bytes.
type intake struct {
	now        time.Time
	maxPayload int
	lenient    bool
	cross      bool // items name their tenant

	items []Item // what is wrong
	index *int   // of the item being read, in a batch
}

// item is one event of a request.
type item struct {
	outbox.NewEvent
	tenant string
	given  fieldSet
}

// fieldSet remembers which fields an item had.
type fieldSet uint8

const (
	hasType fieldSet = 1 << iota
	hasPayload
	hasID
	hasOrderingKey
	hasIdempotencyKey
	hasMetadata
	hasTenant
	hasEvents
)

const (
	maxMetadataBytes = 16 << 10 // names and values of one event together
	// maxEnvelope is what may surround a payload in a request for one event.
	maxEnvelope = 64 << 10
)

func (in *intake) bad(path string, code Code, format string, args ...any) {
	in.items = append(in.items, Item{Index: in.index, Path: path, Code: code, Detail: fmt.Sprintf(format, args...)})
}

// single reads the body of POST …/events.
func (in *intake) single(body []byte) (item, error) {
	s := rawjson.NewScanner(body)
	var it item
	err := in.item(&s, &it)
	if err == nil {
		err = s.End()
	}
	return it, in.verdict(err)
}

// batch reads {"events":[…]}. Payloads are copied out of the body, so that one that waits for
// its endpoint does not keep the whole batch in memory.
func (in *intake) batch(body []byte) ([]item, error) {
	s := rawjson.NewScanner(body)
	items, err := in.envelope(&s)
	if err == nil {
		err = s.End()
	}
	if err := in.verdict(err); err != nil {
		return nil, err
	}
	return items, nil
}

func (in *intake) envelope(s *rawjson.Scanner) ([]item, error) {
	if err := s.Open('{'); err != nil {
		return nil, err
	}
	var items []item
	given := false
	for {
		name, more, err := s.Member()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if string(name) != "events" {
			if err := in.unknown(s, string(name)); err != nil {
				return nil, err
			}
			continue
		}
		if given {
			in.bad("events", CodeDuplicateField, "is given twice")
		}
		given = true
		if items, err = in.events(s); err != nil {
			return nil, err
		}
	}
	switch {
	case !given:
		in.bad("events", CodeMissingField, "is required")
	case len(items) == 0 && len(in.items) == 0:
		in.bad("events", CodeBatchTooLarge, "a batch holds at least one event")
	}
	return items, nil
}

func (in *intake) events(s *rawjson.Scanner) ([]item, error) {
	if s.Kind() != '[' {
		in.bad("events", CodeInvalidField, "want an array")
		_, err := s.Value()
		return nil, err
	}
	if err := s.Open('['); err != nil {
		return nil, err
	}
	var items []item
	defer func() { in.index = nil }()
	for i := 0; ; i++ {
		in.index = nil
		more, err := s.Element()
		if err != nil || !more {
			return items, err
		}
		if i == outbox.MaxBatchEvents {
			return nil, failField("events", CodeBatchTooLarge, "a batch holds at most %d events", outbox.MaxBatchEvents)
		}
		in.index = new(i)
		items = append(items, item{})
		it := &items[i]
		if err := in.item(s, it); err != nil {
			return nil, err
		}
		it.Payload = bytes.Clone(it.Payload)
	}
}

// verdict turns what was found into the answer: a text that cannot be read before fields that
// cannot be taken.
func (in *intake) verdict(err error) error {
	if fault, is := errors.AsType[*rawjson.Error](err); is {
		return failItems([]Item{{Index: in.index, Path: "", Code: CodeInvalidPayload, Detail: fault.Error()}})
	}
	if err != nil {
		return err
	}
	if len(in.items) > 0 {
		return failItems(in.items)
	}
	return nil
}

// item reads one event object.
func (in *intake) item(s *rawjson.Scanner, it *item) error {
	if s.Kind() != '{' {
		if _, err := s.Value(); err != nil {
			return err
		}
		in.bad("", CodeInvalidField, "want an object")
		return nil
	}
	if err := s.Open('{'); err != nil {
		return err
	}
	for {
		name, more, err := s.Member()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := in.member(s, it, name); err != nil {
			return err
		}
	}
	if it.given&hasType == 0 {
		in.bad("type", CodeMissingField, "is required")
	}
	if it.given&hasPayload == 0 {
		in.bad("payload", CodeMissingField, "is required")
	}
	if in.cross && it.given&hasTenant == 0 {
		in.bad("tenant", CodeMissingField, "is required")
	}
	return nil
}

// member reads one field of an event.
func (in *intake) member(s *rawjson.Scanner, it *item, name []byte) error {
	field := fieldNamed(string(name)) // does not allocate
	if field == 0 || field == hasTenant && !in.cross {
		return in.unknown(s, string(name))
	}
	if it.given&field != 0 {
		in.bad(string(name), CodeDuplicateField, "is given twice")
	}
	it.given |= field
	raw, err := s.Value()
	if err != nil {
		if fault, is := errors.AsType[*rawjson.Error](err); is && field == hasPayload {
			return failItems([]Item{{Index: in.index, Path: "payload", Code: CodeInvalidPayload, Detail: fault.Error()}})
		}
		return err
	}
	if field == hasPayload {
		it.Payload = raw
		if len(raw) > in.maxPayload {
			in.bad("payload", CodePayloadTooLarge, "has %d bytes, at most %d are taken", len(raw), in.maxPayload)
		}
		return nil
	}
	if field == hasMetadata {
		in.metadata(it, raw)
		return nil
	}
	if raw[0] == 'n' && field != hasType && field != hasTenant {
		return nil // null is absent
	}
	if raw[0] != '"' {
		in.bad(string(name), CodeInvalidField, "want a string")
		return nil
	}
	text, ok := rawjson.Text(raw)
	if !ok {
		in.bad(string(name), CodeInvalidField, notText)
		return nil
	}
	in.text(it, field, text)
	return nil
}

func fieldNamed(name string) fieldSet {
	switch name {
	case "type":
		return hasType
	case "payload":
		return hasPayload
	case "id":
		return hasID
	case "ordering_key":
		return hasOrderingKey
	case "idempotency_key":
		return hasIdempotencyKey
	case "metadata":
		return hasMetadata
	case "tenant":
		return hasTenant
	}
	return 0
}

// text takes a field whose value is a string.
func (in *intake) text(it *item, field fieldSet, s string) {
	switch field {
	case hasType:
		it.Type = s
		if !outbox.ValidEventType(s) {
			in.bad("type", CodeInvalidField, "want words of A-Z a-z 0-9 _ - joined by dots, at most %d bytes", outbox.MaxEventType)
		}
	case hasTenant:
		it.tenant = s
	case hasID:
		id, err := outbox.ParseEventID(s)
		if err != nil {
			in.bad("id", CodeInvalidField, "want evt_ and 26 characters of base32")
			return
		}
		if at := id.Time(); at.Before(in.now.Add(-outbox.ChosenIDPast)) || at.After(in.now.Add(outbox.ChosenIDFuture)) {
			in.bad("id", CodeIDTime, "its time lies outside the last 24 hours and the next 5 minutes")
		}
		it.ID, it.Chosen = id, true
	case hasOrderingKey:
		it.OrderingKey = s
		if len(s) > outbox.MaxOrderingKey || strings.ContainsRune(s, 0) {
			in.bad("ordering_key", CodeInvalidField, "at most %d bytes, without U+0000", outbox.MaxOrderingKey)
		}
	case hasIdempotencyKey:
		it.IdempotencyKey = s
		if detail := badKey(s); detail != "" {
			in.bad("idempotency_key", CodeInvalidField, "%s", detail)
		}
	}
}

// metadata reads an object of strings.
func (in *intake) metadata(it *item, raw []byte) {
	if raw[0] == 'n' {
		return
	}
	var found []Item
	texts := eventMetadata(value{raw: raw, path: "metadata", items: &found})
	for _, one := range found {
		one.Index = in.index
		in.items = append(in.items, one)
	}
	if len(texts) > 0 {
		it.Metadata = texts
	}
}

// eventMetadata reads the metadata of an event.
func eventMetadata(v value) map[string]string {
	texts, ok := v.textMap(nil, outbox.MaxMetadataEntries, maxMetadata)
	size := 0
	for name, text := range texts {
		size += len(name) + len(text)
		if strings.HasPrefix(name, outbox.HeaderMetadata) {
			v.at(join(v.path, name), nil).invalid("names that begin with %s are for what arrives at sources", outbox.HeaderMetadata)
		}
	}
	if ok && size > maxMetadataBytes {
		v.invalid("at most %d bytes in total", maxMetadataBytes)
	}
	return texts
}

func (in *intake) unknown(s *rawjson.Scanner, name string) error {
	if !in.lenient {
		in.bad(name, CodeUnknownField, "there is no such field")
	}
	_, err := s.Value()
	return err
}

// finish gives an event what the request does not say.
func (in *intake) finish(e *outbox.NewEvent, t *outbox.Tenant) {
	e.Tenant = t.TenantRef
	e.CreatedAt = in.now
	e.SHA256 = sha256.Sum256(e.Payload)
	if !e.Chosen {
		e.ID = outbox.NewEventID(in.now)
	}
}
