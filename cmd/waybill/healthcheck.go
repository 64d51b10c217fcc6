package main

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

// healthcheck is for images that have no curl, and for supervisors.
func (sh *shell) healthcheck() *cobra.Command {
	ready := false
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the server on this machine whether it lives",
		Long: `Ask the server that the settings here describe (WAYBILL_ADMIN_LISTEN, else WAYBILL_LISTEN), or the
one at --url, for /healthz; with --ready for /readyz. No key is needed.

Exit code 0 if it answers well, 1 if it does not, 5 if it does not answer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address := sh.url
			if address == "" {
				cfg, err := sh.config(cmd.Flags())
				if err != nil {
					return err
				}
				address = "http://" + here(cmp.Or(cfg.AdminListen, cfg.Listen))
			}
			c, err := client.New(client.Config{URL: address, Timeout: 5 * time.Second})
			if err != nil {
				return usagef("%s", err)
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			body, err := c.Do(cmd.Context(), client.Request{Method: http.MethodGet, Path: path})
			if answer, refused := err.(*client.Error); refused {
				fmt.Fprintf(sh.err, "waybill: %s answers %d\n", path, answer.Status)
				return errCheckFailed
			}
			if err != nil {
				return err
			}
			return sh.printRaw(body)
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready for work, not only alive")
	cmd.Flags().String("config", "", "YAML file of settings (WAYBILL_CONFIG)")
	return sh.clientFlags(cmd)
}

// here is how a listening address is reached from the same machine.
func here(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
