package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// send posts an event to a source as a provider of Standard Webhooks does.
func (p *publisher) send(ctx context.Context, c *caller, tenant int, n int64) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Secret, "whsec_"))
	if err != nil {
		return err
	}
	now := time.Now()
	body := appendPayload(nil, n, now)
	id, at := "msg_"+strconv.FormatInt(n, 10), strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	return c.post(ctx, fmt.Sprintf("/in/%s-%d", p.Group, tenant), []field{
		{"Webhook-Id", id},
		{"Webhook-Timestamp", at},
		{"Webhook-Signature", "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}, body)
}
