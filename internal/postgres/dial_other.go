//go:build !linux

package postgres

import (
	"context"
	"net"
	"time"
)

// dial gives up a connection whose other end has been silent for 5 seconds.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
	}
	return d.DialContext(ctx, network, address)
}
