// Package inboundmail puts mail that Resend received into a support queue.
//
// Resend's webhook only names a mail. The handler fetches it, reads it and hands it to the queue's
// mail server, all within the provider's request: there is a Redis, and no database. When Redis is
// away mail goes on, since a mail twice is better than none, and the panel says how often that
// happened.
package inboundmail

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/mail"
	"net/smtp"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/redisstore"
)

// Config is what a forwarder needs.
type Config struct {
	Redis  redisstore.Client
	Secret string // of the webhook
	// Fetch gets a mail as it was received, by Resend's id for it.
	Fetch func(ctx context.Context, id string) ([]byte, error)
	SMTP  string // host:port of the support queue
	Queue string // its address
}

// New makes the receiver, and the panel that counts what it does.
func New(ctx context.Context, cfg Config) (*receive.Sync, *Panel, error) {
	panel := &Panel{}
	f := forwarder{cfg}
	sync, err := receive.NewSync(ctx, receive.SyncConfig{
		Source: receive.Source{
			Name:     "support-mail",
			Provider: providers.Resend(),
			Secrets:  receive.Secrets(cfg.Secret),
			Topics:   []string{"email.received"},
		},
		Store:     redisstore.New(cfg.Redis),
		StoreDown: receive.Open,
		Handler:   f.forward,
		// The hard limit. Resend hangs up earlier, after 15 s, and tries again; it then hears how this
		// run ended.
		Deadline: 30 * time.Second,
		Observe:  panel.observe,
	})
	return sync, panel, err
}

type forwarder struct{ Config }

func (f forwarder) forward(ctx context.Context, d *receive.Delivery) error {
	var event struct {
		Data struct {
			EmailID string `json:"email_id"`
		}
	}
	if err := json.Unmarshal(d.Body, &event); err != nil {
		return receive.Permanent(err)
	}
	raw, err := f.Fetch(ctx, event.Data.EmailID)
	if err != nil {
		return err
	}
	got, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return receive.Permanent(fmt.Errorf("mail %s: %w", event.Data.EmailID, err))
	}
	from, err := got.Header.AddressList("From")
	if err != nil {
		return receive.Permanent(fmt.Errorf("mail %s: sender: %w", event.Data.EmailID, err))
	}
	// The queue knows a repeat by this id. With Redis away, and after a crash, there can be one.
	head := fmt.Sprintf("X-Support-Id: %s\r\nX-Support-Sender: %s\r\n", d.ID, from[0].Address)
	if d.Degraded != "" {
		head += "X-Support-Unprotected: " + d.Degraded + "\r\n"
	}
	return send(ctx, f.SMTP, f.Queue, append([]byte(head), raw...))
}

// send hands a mail to a server, and gives up when ctx does.
func send(ctx context.Context, server, to string, raw []byte) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", server)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	host, _, _ := net.SplitHostPort(server)
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if err := c.Mail(to); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if err := w.Close(); err != nil { // only now the queue has it
		return err
	}
	return c.Quit()
}
