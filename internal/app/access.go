package app

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/waybill-dev/waybill/internal/config"
)

// admitOperator refuses to serve where nobody could get in.
func (a *App) admitOperator(ctx context.Context) error {
	if a.cfg.APIKey != "" || !a.cfg.Roles.NeedKeys() {
		return nil
	}
	has, err := a.store.HasOperatorKey(ctx, a.clock.Now())
	if err != nil {
		return fmt.Errorf("look for keys: %w", err)
	}
	if !has {
		return config.ErrNoOperator
	}
	return nil
}

// publicURL is the base of links handed to people: as configured, else where the server listens.
// It never comes from a request: whoever sends one chooses its Host.
func (a *App) publicURL() *url.URL {
	if a.cfg.PublicURL != nil {
		return a.cfg.PublicURL
	}
	return listenerURL(a.listener)
}

// listenerURL is an address of this machine where the listener takes all of them.
func listenerURL(l net.Listener) *url.URL {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return &url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
}
