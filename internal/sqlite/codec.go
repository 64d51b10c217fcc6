package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// micros is how a time is stored.
func micros(t time.Time) int64 { return t.UnixMicro() }

// microsOrNull stores a zero time as NULL.
func microsOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// textOrNull stores an empty string as NULL.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// idOrNull stores a zero id as NULL.
func idOrNull(id [16]byte) any {
	if id == [16]byte{} {
		return nil
	}
	return id[:]
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// timeTo scans a stored time; NULL is the zero time.
type timeTo struct{ t *time.Time }

func (to timeTo) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*to.t = time.Time{}
	case int64:
		*to.t = fromMicros(v)
	default:
		return fmt.Errorf("a time is stored as %T", src)
	}
	return nil
}

// lengthTo scans a stored length of time.
type lengthTo struct{ d *time.Duration }

func (to lengthTo) Scan(src any) error {
	v, ok := src.(int64)
	if !ok {
		return fmt.Errorf("a length of time is stored as %T", src)
	}
	*to.d = time.Duration(v) * time.Microsecond
	return nil
}

// idTo scans a stored id; NULL is the zero id.
type idTo struct{ id *[16]byte }

func (to idTo) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*to.id = [16]byte{}
		return nil
	case []byte:
		if len(v) == 16 {
			*to.id = [16]byte(v)
			return nil
		}
	}
	return fmt.Errorf("an id is stored as %T", src)
}

// digestTo scans a stored SHA-256.
type digestTo struct{ sum *[32]byte }

func (to digestTo) Scan(src any) error {
	v, ok := src.([]byte)
	if !ok || len(v) != 32 {
		return fmt.Errorf("a digest is stored as %T", src)
	}
	*to.sum = [32]byte(v)
	return nil
}

// jsonTo scans JSON text into what to points to; NULL leaves it alone.
type jsonTo struct{ to any }

func (j jsonTo) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(v), j.to)
	default:
		return fmt.Errorf("JSON is stored as %T", src)
	}
}

// toJSON writes what is known to be writable: maps of strings, lists, our own structs.
func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sqlite: %T as JSON: %v", v, err))
	}
	return string(text)
}

// mapJSON stores an empty map as {}.
func mapJSON(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	return toJSON(m)
}

// shardList is a list of shards as json_each takes it.
func shardList(shards []outbox.Shard) string {
	numbers := make([]int, len(shards)) // a []Shard would be written as base64: it is bytes
	for i, s := range shards {
		numbers[i] = int(s)
	}
	return toJSON(numbers)
}

// retryJSON is how a retry policy is stored: lengths in microseconds, what is unset left out.
type retryJSON struct {
	Initial       int64     `json:"initial,omitempty"`
	Max           int64     `json:"max,omitempty"`
	Window        int64     `json:"window,omitempty"`
	MaxAttempts   int       `json:"max_attempts,omitempty"`
	RetryStatuses *[]string `json:"retry_statuses,omitempty"` // an empty list is not an absent one
}

func storedRetry(p outbox.RetryPolicy) string {
	stored := retryJSON{
		Initial:     p.Initial.Microseconds(),
		Max:         p.Max.Microseconds(),
		Window:      p.Window.Microseconds(),
		MaxAttempts: p.MaxAttempts,
	}
	if p.RetryStatuses != nil {
		stored.RetryStatuses = &p.RetryStatuses
	}
	return toJSON(stored)
}

// readRetry reads a stored policy. A name it does not know was written by hand and would silently
// have no effect.
func readRetry(text string) (outbox.RetryPolicy, error) {
	var stored retryJSON
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&stored)
	return stored.policy(), err
}

func (r retryJSON) policy() outbox.RetryPolicy {
	p := outbox.RetryPolicy{
		Initial:     time.Duration(r.Initial) * time.Microsecond,
		Max:         time.Duration(r.Max) * time.Microsecond,
		Window:      time.Duration(r.Window) * time.Microsecond,
		MaxAttempts: r.MaxAttempts,
	}
	if r.RetryStatuses != nil {
		p.RetryStatuses = *r.RetryStatuses
	}
	return p
}

const dayMillis = 24 * 60 * 60 * 1000

// dayOf numbers the UTC day of an id's time: days since 1970.
func dayOf(at time.Time) int64 { return at.UnixMilli() / dayMillis }

// dayStart is the first moment of a day.
func dayStart(day int64) time.Time { return time.UnixMilli(day * dayMillis).UTC() }

// packHeaders stores header lines: names and values in turn, each behind its length. What a
// receiver sends may be no text in any encoding, and must come back as it was.
func packHeaders(headers []outbox.Header) []byte {
	packed := []byte{} // not nil, which would be NULL
	for _, h := range headers {
		for _, part := range []string{h.Name, h.Value} {
			packed = binary.AppendUvarint(packed, uint64(len(part)))
			packed = append(packed, part...)
		}
	}
	return packed
}

// headersTo scans packed header lines.
type headersTo struct{ headers *[]outbox.Header }

func (to headersTo) Scan(src any) error {
	packed, ok := src.([]byte)
	if !ok && src != nil {
		return fmt.Errorf("headers are stored as %T", src)
	}
	next := func() (string, error) {
		length, n := binary.Uvarint(packed)
		if n <= 0 || length > uint64(len(packed)-n) {
			return "", errors.New("headers are stored incompletely")
		}
		part := string(packed[n : n+int(length)])
		packed = packed[n+int(length):]
		return part, nil
	}
	for len(packed) > 0 {
		name, err := next()
		if err != nil {
			return err
		}
		value, err := next()
		if err != nil {
			return err
		}
		*to.headers = append(*to.headers, outbox.Header{Name: name, Value: value})
	}
	return nil
}
