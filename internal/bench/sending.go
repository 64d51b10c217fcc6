package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// send posts an event to a source as a provider of Standard Webhooks does.
func (p *publisher) send(ctx context.Context, tenant int, n int64) error {
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/in/%s-%d", p.URL, p.Group, tenant), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("send: %s: %.200s", resp.Status, answer)
	}
	return nil
}
