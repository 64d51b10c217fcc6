package api

import (
	"context"
	"net/http"
)

// Who finds whom a key belongs to, as a request with it would; false if it is none.
func (a *API) Who(ctx context.Context, key string) (Holder, bool, error) {
	r := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}}).WithContext(ctx)
	who, err := a.holders.of(r)
	if err != nil && problemOf(err).Status == http.StatusUnauthorized {
		return Holder{}, false, nil
	}
	return who, err == nil, err
}
