// Package dev is Waybill on one screen, for somebody who met it a minute ago: the server on a
// SQLite file, a tenant with an endpoint, and the receiver behind it, in one process.
package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/waybill-dev/waybill/internal/app"
	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/listen"
	"github.com/waybill-dev/waybill/signature"
)

// The demo tenant, and the uid of its endpoint.
const (
	Tenant   = "demo"
	Endpoint = "demo-receiver"
)

// Options says where and how.
type Options struct {
	// Config as for serve. The database must be SQLite; a missing API key is derived from the
	// database's key file, and loopback is opened to deliveries.
	Config config.Config
	Out    io.Writer
	Log    *slog.Logger
}

// Run runs until ctx ends and returns after a graceful stop.
func Run(ctx context.Context, o Options) error {
	cfg := o.Config
	if _, sqlite := cfg.SQLitePath(); !sqlite {
		return &config.Refusal{Reason: "dev keeps its data in a SQLite file, and opens loopback to deliveries: use serve with PostgreSQL"}
	}
	own, err := cfg.DevKeys()
	if err != nil {
		return err
	}
	if cfg.APIKey == "" {
		cfg.APIKey = own.APIKey
	}
	cfg.Development = true
	cfg.EgressAllow = append(cfg.EgressAllow, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	if err := cfg.CheckServe(); err != nil {
		return err
	}

	secret, err := signature.ParseSecret(own.SigningSecret.Reveal())
	if err != nil {
		return fmt.Errorf("demo receiver: %w", err)
	}
	receiver, address, err := startReceiver(&listen.Receiver{Secrets: []signature.Secret{secret}, Out: o.Out})
	if err != nil {
		return fmt.Errorf("demo receiver: %w", err)
	}
	defer receiver.Close()

	server, err := app.New(ctx, cfg, o.Log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(running) }()

	base := "http://" + server.Addr()
	link, err := dashboard(ctx, base, cfg.APIKey)
	if err == nil {
		greet(o.Out, base, link, cfg)
		err = demo(ctx, base, cfg.APIKey, address, own.SigningSecret)
	}
	if err != nil && ctx.Err() == nil {
		stop()
		return errors.Join(err, <-stopped)
	}
	err = <-stopped
	path, _ := cfg.SQLitePath()
	fmt.Fprintf(o.Out, "\nStopped. What stays: %s and its key file %s. Start again to go on with them.\n", path, cfg.KeyFile())
	return err
}

// startReceiver serves the handler on a free port of loopback.
func startReceiver(handler http.Handler) (*http.Server, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // it ends with Close
	return server, "http://" + l.Addr().String() + "/webhooks", nil
}

// demo makes the tenant and its endpoint, and publishes a first event.
func demo(ctx context.Context, base string, key config.Secret, receiver string, secret config.Secret) error {
	c, err := client.New(client.Config{URL: base, Key: key.Reveal()})
	if err != nil {
		return err
	}
	put := func(path string, body map[string]any) error {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = c.Do(ctx, client.Request{Method: http.MethodPut, Path: path, Body: encoded})
		return err
	}
	if err := put(client.Path("v1", "tenants", Tenant), map[string]any{"name": "Demo"}); err != nil {
		return fmt.Errorf("demo tenant: %w", err)
	}
	// The receiver's port is another one at every start.
	endpoint := map[string]any{
		"url":         receiver,
		"description": "the receiver inside waybill dev",
		"state":       "active",
		"secrets":     []map[string]any{{"value": secret.Reveal()}},
	}
	if err := put(client.Path("v1", "tenants", Tenant, "endpoints", Endpoint), endpoint); err != nil {
		return fmt.Errorf("demo endpoint: %w", err)
	}
	body, err := client.EventBody(client.NewEvent{Type: "demo.started"}, []byte(`{"hello":"world"}`))
	if err != nil {
		return err
	}
	if _, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: client.Path("v1", "tenants", Tenant, "events"), Body: body}); err != nil {
		return fmt.Errorf("demo event: %w", err)
	}
	return nil
}

// dashboard makes a link that opens the dashboard, once.
func dashboard(ctx context.Context, base string, key config.Secret) (string, error) {
	c, err := client.New(client.Config{URL: base, Key: key.Reveal()})
	if err != nil {
		return "", err
	}
	made, _, err := client.Call[struct {
		URL string `json:"url"`
	}](ctx, c, client.Request{
		Method: http.MethodPost, Path: client.Path("v1", "operator-sessions"), Body: []byte(`{"link_expires_in_seconds":3600}`),
	})
	if err != nil {
		return "", fmt.Errorf("dashboard: %w", err)
	}
	return made.URL, nil
}

// greet prints what a newcomer needs. The key is printed on purpose: it opens this database, on
// this machine, and nothing else.
func greet(out io.Writer, base, link string, cfg config.Config) {
	path, _ := cfg.SQLitePath()
	auth := "-H 'Authorization: Bearer " + cfg.APIKey.Reveal() + "'"
	fmt.Fprintf(out, `Waybill is running at %[1]s
  database  %[2]s (secrets sealed with %[3]s)
  API key   %[4]s
  tenant    %[5]s, whose endpoint %[6]q is a receiver in this process
  dashboard %[8]s
            (the link works once, within an hour; the key signs in as well)

  Deliveries may go to this machine's own loopback addresses here. serve does not allow that.

Publish an event:
  curl -s %[7]s -H 'Content-Type: application/json' %[1]s/v1/tenants/%[5]s/events -d '{"type":"payment.succeeded","payload":{"id":"pay_1"}}'
See what became of it:
  curl -s %[7]s %[1]s/v1/tenants/%[5]s/deliveries
Have it sent to your own program as well:
  curl -s %[7]s -H 'Content-Type: application/json' %[1]s/v1/tenants/%[5]s/endpoints -d '{"url":"http://127.0.0.1:3000/webhooks"}'

Deliveries as they arrive (Ctrl-C stops):
`, base, path, cfg.KeyFile(), cfg.APIKey.Reveal(), Tenant, Endpoint, auth, link)
}
