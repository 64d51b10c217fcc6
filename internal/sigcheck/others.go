package sigcheck

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/signature"
)

// others are the providers whose signature header the request has.
func others(ctx context.Context, r Request) (hints []string) {
	var seen []string
	for p := range providers.All() {
		if p.Name == r.Provider.Name {
			continue
		}
		for _, name := range p.Scheme.Headers() {
			if name == "Authorization" || r.Header.Get(name) == "" || slices.Contains(seen, name) {
				continue
			}
			seen = append(seen, name)
			hint := fmt.Sprintf("the request has %s, which %s signs in", name, p.Name)
			if _, paypal := p.Scheme.(*signature.PayPalRSA); !paypal && verifies(ctx, p.Scheme, r.Secret, r.Request, r.At) {
				hint += ", and it verifies as such"
			}
			hints = append(hints, hint)
		}
	}
	return hints
}
