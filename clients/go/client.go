package waybillapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"
)

// answerTime bounds one request of a client made by New: the server gives up earlier.
const answerTime = 60 * time.Second

// New makes a client of the server at the address (http://127.0.0.1:8420), which sends the key
// with every request. Every answer of 400 and above becomes an *Error, so where err is nil the
// field of the answer's status (JSON200, JSON201, JSON202) is set; GET /readyz alone answers 503
// with an object of its own. Options come last and may replace what New sets.
//
// Objects of the answers gain fields with time and lists of words gain words: both pass.
func New(address, key string, options ...ClientOption) (*ClientWithResponses, error) {
	if key == "" {
		return nil, errors.New("waybillapi: a key is needed")
	}
	all := []ClientOption{
		WithHTTPClient(&Refusals{Next: &http.Client{Timeout: answerTime}}),
		WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+key)
			return nil
		}),
	}
	return NewClientWithResponses(address, append(all, options...)...)
}

// All walks over a list, page after page, and stops at the first error. fetch gets the page at a
// cursor, nil for the first; a page may be short, even empty, and not the last.
//
//	for delivery, err := range waybillapi.All(func(cursor *string) ([]waybillapi.Delivery, *string, error) {
//		page, err := client.ListDeliveriesWithResponse(ctx, "acme", &waybillapi.ListDeliveriesParams{Cursor: cursor})
//		if err != nil {
//			return nil, nil, err
//		}
//		return page.JSON200.Data, page.JSON200.NextCursor, nil
//	}) {
//		...
//	}
func All[T any](fetch func(cursor *string) (rows []T, next *string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var cursor *string
		for {
			rows, next, err := fetch(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			cursor = next
		}
	}
}
