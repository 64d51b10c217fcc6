package waybill

import (
	"errors"
	"fmt"
	"testing"
)

// methodError is an error as pgx and newer versions of lib/pq make it.
type methodError struct{ state string }

func (e *methodError) Error() string    { return "refused by the server" }
func (e *methodError) SQLState() string { return e.state }

// fieldError is one of an older lib/pq.
type fieldError struct{ state string }

func (e *fieldError) Error() string { return "refused by the server" }
func (e *fieldError) Get(field byte) string {
	if field == 'C' {
		return e.state
	}
	return ""
}

func TestRefused_findsTheSentinelOfAnyDriver(t *testing.T) {
	for state, want := range sentinels {
		for _, original := range []error{&methodError{state}, &fieldError{state}} {
			got := refused(fmt.Errorf("wrapped: %w", original))
			if !errors.Is(got, want) || !errors.Is(got, original) {
				t.Errorf("%s in a %T: %v, want %v with the original in its chain", state, original, got, want)
			}
		}
	}
	for _, other := range []error{&methodError{"40001"}, &fieldError{"57P01"}, errors.New("broken pipe")} {
		got := refused(other)
		for _, sentinel := range sentinels {
			if errors.Is(got, sentinel) {
				t.Errorf("%v became %v", other, sentinel)
			}
		}
		if !errors.Is(got, other) {
			t.Errorf("%v lost the original", got)
		}
	}
}
