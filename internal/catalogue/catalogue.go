// Package catalogue holds payloads to the JSON Schemas of their event types.
//
// An operator describes event types, and may give one a schema. Events published through the API
// are checked against it: what does not follow it is refused, or accepted with a warning. Events
// published in SQL are not checked; a database has no JSON Schema.
//
// A schema stands alone. References to other documents are refused when it is stored, so nothing
// is ever fetched.
package catalogue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// MaxSchema is the largest schema, in bytes.
const MaxSchema = 128 << 10

// maxProblems is how many of a payload's problems are told.
const maxProblems = 5

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// ErrSchema is wrapped by every error about a schema that cannot be used.
var ErrSchema = errors.New("JSON Schema")

// alone refuses to load anything.
type alone struct{}

func (alone) Load(string) (any, error) {
	return nil, errors.New("it refers to another document")
}

// Compile reads a schema, of draft 2020-12 unless it says otherwise.
func Compile(text []byte) (*Schema, error) {
	if len(text) > MaxSchema {
		return nil, fmt.Errorf("%w: at most %d bytes", ErrSchema, MaxSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w: is not JSON", ErrSchema)
	}
	const name = "waybill:event-type"
	c := jsonschema.NewCompiler()
	c.UseLoader(alone{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, plain(err, name))
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, plain(err, name))
	}
	if at, found := endless(compiled); found {
		return nil, fmt.Errorf("%w: %s refers back to itself without going deeper into the payload, so no payload could be judged by it", ErrSchema, at)
	}
	return &Schema{compiled}, nil
}

// plain says what is wrong without the library's name for the document.
func plain(err error, name string) string {
	if _, external := errors.AsType[*jsonschema.LoadURLError](err); external {
		return "it refers to another document, which is not followed"
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), name, ""), "\n")
	return text
}

// Problem is where a payload does not follow its schema.
type Problem struct {
	Path   string // "payload.data.amount"
	Detail string
}

// Check says where a payload does not follow the schema, at most five places. nil: it does.
func (s *Schema) Check(payload []byte) []Problem {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return []Problem{{"payload", "cannot be read as JSON"}}
	}
	if !affordable(s.compiled, doc) {
		return []Problem{{"payload", "takes too long to judge by the schema of its event type: the schema comes to the same part of it by many ways"}}
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](s.compiled.Validate(doc))
	if !ok {
		return nil
	}
	var problems []Problem
	english := message.NewPrinter(language.English)
	var leaves func(e *jsonschema.ValidationError)
	leaves = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			leaves(cause)
		}
		if len(e.Causes) == 0 && len(problems) < maxProblems {
			problems = append(problems, Problem{strings.Join(append([]string{"payload"}, e.InstanceLocation...), "."), e.ErrorKind.LocalizedString(english)})
		}
	}
	leaves(invalid)
	return problems
}

// Store is what the checker reads.
type Store interface {
	EventTypes(ctx context.Context, after string, page outbox.Page) ([]outbox.EventType, error)
	CatalogueRevision(ctx context.Context) (int64, error)
}

// Checker holds events to the catalogue. It is safe for concurrent use.
type Checker struct {
	store Store

	mu       sync.Mutex
	rules    map[string]*rule
	revision int64
	lookedAt time.Time
}

type rule struct {
	schema *Schema
	refuse bool
}

// New makes a checker; nothing is read yet.
func New(store Store) *Checker { return &Checker{store: store, revision: -1} }

// fresh is how long the catalogue is used without asking whether it changed.
const fresh = time.Second

// Verdict is what the catalogue says about a payload.
type Verdict struct {
	Refused  bool
	Problems []Problem // of a refused one, or to warn of
}

// Check judges a payload by its type's schema. A type without one costs a look into a map. While
// the database cannot be asked, what was read last holds.
func (c *Checker) Check(ctx context.Context, eventType string, payload []byte, now time.Time) (Verdict, error) {
	rule, err := c.rule(ctx, eventType, now)
	if err != nil || rule == nil {
		return Verdict{}, err
	}
	problems := rule.schema.Check(payload)
	return Verdict{Refused: rule.refuse && len(problems) > 0, Problems: problems}, nil
}

func (c *Checker) rule(ctx context.Context, eventType string, now time.Time) (*rule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.lookedAt); age < 0 || age >= fresh {
		if err := c.look(ctx); err != nil && c.rules == nil {
			return nil, err
		}
		c.lookedAt = now
	}
	return c.rules[eventType], nil
}

// look reads the catalogue if it changed. The caller holds the lock.
func (c *Checker) look(ctx context.Context) error {
	revision, err := c.store.CatalogueRevision(ctx)
	if err != nil || revision == c.revision {
		return err
	}
	rules := map[string]*rule{}
	after := ""
	for {
		page, err := c.store.EventTypes(ctx, after, outbox.Page{Limit: 250, Ascending: true})
		if err != nil {
			return err
		}
		for i := range page {
			t := &page[i]
			if t.Schema == nil {
				continue
			}
			// One that cannot be used was stored by another version; it holds nobody up.
			if schema, err := Compile(t.Schema); err == nil {
				rules[t.Name] = &rule{schema, t.OnInvalid == outbox.OnInvalidRefuse}
			}
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Name
	}
	c.rules, c.revision = rules, revision
	return nil
}
