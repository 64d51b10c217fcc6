package catalogue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// shelf is a store of one event type.
type shelf struct {
	schema   string
	revision int64
	away     error
}

func (s *shelf) CatalogueRevision(context.Context) (int64, error) { return s.revision, s.away }

func (s *shelf) EventTypes(_ context.Context, after string, _ outbox.Page) ([]outbox.EventType, error) {
	if after != "" || s.schema == "" {
		return nil, s.away
	}
	return []outbox.EventType{{Name: "a.b", Schema: []byte(s.schema), OnInvalid: outbox.OnInvalidRefuse}}, s.away
}

func TestChecker_whatWasReadLastHoldsWhileTheDatabaseIsAway(t *testing.T) {
	away := errors.New("away")
	s := &shelf{schema: `{"type":"integer"}`, revision: 1, away: away}
	c := catalogue.New(s)
	now := time.Now()
	check := func() (bool, error) {
		now = now.Add(2 * time.Second)
		v, err := c.Check(t.Context(), "a.b", []byte(`"x"`), now)
		return v.Refused, err
	}
	if _, err := check(); !errors.Is(err, away) {
		t.Errorf("before anything was read: %v", err)
	}
	s.away = nil
	if refused, err := check(); err != nil || !refused {
		t.Errorf("refused %t, %v", refused, err)
	}
	s.away = away
	if refused, err := check(); err != nil || !refused {
		t.Errorf("while it is away: refused %t, %v", refused, err)
	}
	s.away, s.schema, s.revision = nil, "", 2
	if refused, err := check(); err != nil || refused {
		t.Errorf("after the schema went: refused %t, %v", refused, err)
	}
}

func TestSchema_tellsAFewProblemsByTheirPlace(t *testing.T) {
	s, err := catalogue.Compile([]byte(`{"properties":{"items":{"items":{"type":"integer"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	problems := s.Check([]byte(`{"items":[1,"a","b","c","d","e","f","g"]}`))
	if len(problems) != 5 || !strings.HasPrefix(problems[0].Path, "payload.items.") {
		t.Errorf("%+v", problems)
	}
	if problems := s.Check([]byte(`{"items":[1e400, 9007199254740993, 1.0]}`)); problems != nil {
		t.Errorf("whole numbers of any size: %+v", problems)
	}
}
