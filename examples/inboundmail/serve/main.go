// Serve receives Resend's webhooks at POST /resend and shows what became of them at /.
//
//	REDIS_URL=redis://127.0.0.1 RESEND_API_KEY=re_… RESEND_WEBHOOK_SECRET=whsec_… \
//	SMTP=127.0.0.1:25 QUEUE=support@example.com go run ./examples/inboundmail/serve
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-dev/waybill/examples/inboundmail"
)

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	mail, panel, err := inboundmail.New(context.Background(), inboundmail.Config{
		Redis:  redis.NewClient(options),
		Secret: os.Getenv("RESEND_WEBHOOK_SECRET"),
		Fetch:  fetch,
		SMTP:   os.Getenv("SMTP"),
		Queue:  os.Getenv("QUEUE"),
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /resend", mail)
	http.Handle("GET /", panel)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}

// fetch gets a mail's bytes: Resend says where they are, for a while.
func fetch(ctx context.Context, id string) ([]byte, error) {
	answer, err := get(ctx, "https://api.resend.com/emails/receiving/"+url.PathEscape(id), os.Getenv("RESEND_API_KEY"))
	if err != nil {
		return nil, fmt.Errorf("mail %s: %w", id, err)
	}
	var mail struct {
		Raw struct {
			DownloadURL string `json:"download_url"`
		}
	}
	if err := json.Unmarshal(answer, &mail); err != nil {
		return nil, fmt.Errorf("mail %s: %w", id, err)
	}
	return get(ctx, mail.Raw.DownloadURL, "")
}

func get(ctx context.Context, address, key string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, 40<<20))
}
