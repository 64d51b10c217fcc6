package signature

import (
	"context"
	"crypto"
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// AdyenItems is Adyen's standard webhooks: each item of the body has the base64 of an HMAC-SHA256 in
// additionalData.hmacSignature, over eight of its fields with colons in between. Nothing else of an
// item is signed, and no time is. A request verifies if each of its items does.
//
// The fields, and a vector: https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures
type AdyenItems struct{}

// Key is Scheme's: hexadecimal, as the Customer Area shows it.
func (AdyenItems) Key(secret string) (Key, error) {
	if err := readable(secret); err != nil {
		return Key{}, err
	}
	raw, err := hex.DecodeString(secret)
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("%w: is not hexadecimal", ErrSecret)
	case len(raw) < MinSecret:
		return Key{}, fmt.Errorf("%w: has %d bytes, want at least %d", ErrSecret, len(raw), MinSecret)
	}
	return Key{raw: raw, macs: macPool(raw, crypto.SHA256)}, nil
}

// Headers is Scheme's: there are none.
func (AdyenItems) Headers() []string { return nil }

type adyenBody struct {
	Items []struct {
		Item *adyenItem `json:"NotificationRequestItem"`
	} `json:"notificationItems"`
}

type adyenItem struct {
	PSPReference        string `json:"pspReference"`
	OriginalReference   string `json:"originalReference"`
	MerchantAccountCode string `json:"merchantAccountCode"`
	MerchantReference   string `json:"merchantReference"`
	Amount              struct {
		Value    json.Number `json:"value"` // never through a float
		Currency string      `json:"currency"`
	} `json:"amount"`
	EventCode      string          `json:"eventCode"`
	Success        json.RawMessage `json:"success"` // "true", or true
	AdditionalData struct {
		Signature string `json:"hmacSignature"`
	} `json:"additionalData"`
}

// signed is what Adyen signs of an item.
func (i *adyenItem) signed() []byte {
	return []byte(strings.Join([]string{
		i.PSPReference, i.OriginalReference, i.MerchantAccountCode, i.MerchantReference,
		i.Amount.Value.String(), i.Amount.Currency, i.EventCode, strings.Trim(string(i.Success), `"`),
	}, ":"))
}

// Verify is Scheme's. Key is that of the first item.
func (AdyenItems) Verify(_ context.Context, r Request, keys []Key, _ time.Time) (Verified, error) {
	var body adyenBody
	if json.Unmarshal(r.Body, &body) != nil {
		return Verified{}, refuse(Malformed, "the body is not JSON as Adyen's")
	}
	if len(body.Items) == 0 {
		return Verified{}, refuse(Missing, "the body has no notificationItems, so nothing is signed")
	}
	v := Verified{Key: -1}
	for _, one := range body.Items {
		if one.Item == nil || one.Item.AdditionalData.Signature == "" {
			return Verified{}, refuse(Missing, "an item has no additionalData.hmacSignature")
		}
		got, err := base64.StdEncoding.Strict().DecodeString(one.Item.AdditionalData.Signature)
		if err != nil || len(got) != crypto.SHA256.Size() {
			return Verified{}, refuse(Malformed, "an item's hmacSignature is not the base64 of a SHA-256 MAC")
		}
		key := -1
		var buf [64]byte
		signed := one.Item.signed()
		for i, k := range keys {
			if k.macs != nil && hmac.Equal(got, k.mac(buf[:0], signed)) && key < 0 {
				key = i
			}
		}
		if key < 0 {
			return Verified{}, refuse(Mismatch, "an item's hmacSignature was not made with a key of this source")
		}
		if v.Key < 0 {
			v.Key = key
		}
	}
	return v, nil
}

// Sign is SigningScheme's: it gives each item of the body its signature, and makes a body of another
// form the merchantReference of one item.
func (s AdyenItems) Sign(r *Request, id string, keys []Key, _ time.Time) error {
	if len(keys) == 0 || keys[0].macs == nil {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	var body struct {
		Live  string                       `json:"live,omitempty"`
		Items []map[string]json.RawMessage `json:"notificationItems"`
	}
	if json.Unmarshal(r.Body, &body) != nil || len(body.Items) == 0 {
		item, err := json.Marshal(map[string]any{
			"pspReference": id, "eventCode": "AUTHORISATION", "success": "true", "merchantAccountCode": "Test",
			"merchantReference": string(r.Body), "amount": map[string]any{"value": 1130, "currency": "EUR"},
		})
		if err != nil {
			return err
		}
		body.Items = []map[string]json.RawMessage{{"NotificationRequestItem": item}}
	}
	for _, one := range body.Items {
		var item adyenItem
		fields := map[string]json.RawMessage{}
		raw := one["NotificationRequestItem"]
		if err := json.Unmarshal(raw, &item); err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &fields); err != nil {
			return err
		}
		mac := base64.StdEncoding.EncodeToString(keys[0].mac(nil, item.signed()))
		fields["additionalData"] = json.RawMessage(`{"hmacSignature":"` + mac + `"}`)
		signed, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		one["NotificationRequestItem"] = signed
	}
	signed, err := json.Marshal(body)
	if err == nil {
		r.Body = signed
	}
	return err
}

// NewKey is SigningScheme's.
func (s AdyenItems) NewKey() (string, Key, error) { return randomHex(s, 32) }
