package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/listen"
	"github.com/waybill-dev/waybill/signature"
)

func (sh *shell) listen() *cobra.Command {
	var address, secretFile, tenant, forward string
	var secrets, types []string
	receiver := &listen.Receiver{}
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks here, check their signatures and print them",
		Long: `Receive webhooks here, check their signatures and print one line for each.

With --url the events come from there: new events of --tenant are fetched from the server, signed
as the server would, and posted to --forward-to, or to the receiver itself. That needs no address
the server could reach. It is for development: each event is posted once, and no delivery of the
server's is touched.`,
		Example: `  waybill listen --secret whsec_…
  waybill listen --url https://waybill.example --tenant acme --forward-to http://localhost:3000/webhooks`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if secretFile != "" {
				content, err := os.ReadFile(secretFile)
				if err != nil {
					return usagef("%s", err)
				}
				secrets = append(secrets, strings.Fields(string(content))...)
			}
			pulling := sh.url != "" || tenant != ""
			switch {
			case pulling && tenant == "":
				return usagef("whose events? give --tenant")
			case !pulling && (forward != "" || len(types) > 0):
				return usagef("--forward-to and --event-type need --url: they are about events fetched from a server")
			}
			if forward != "" {
				if err := listen.CheckForward(forward); err != nil {
					return usagef("%s", err)
				}
			}
			if pulling && len(secrets) == 0 {
				secrets = []string{signature.GenerateSecret()}
				fmt.Fprintf(sh.err, "signing with %s\n", secrets[0])
			}
			for _, text := range secrets {
				s, err := signature.ParseSecret(text)
				if err != nil {
					return usagef("%s", err)
				}
				receiver.Secrets = append(receiver.Secrets, s)
			}
			receiver.Out, receiver.JSON = sh.out, sh.json
			if !pulling {
				return sh.receive(cmd.Context(), receiver, address)
			}
			return sh.pull(cmd.Context(), receiver, address, &listen.Puller{Tenant: tenant, EventTypes: types, To: forward, Secret: receiver.Secrets[0]})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "listen", "127.0.0.1:8421", "address to receive on; port 0 picks one")
	flags.StringSliceVar(&secrets, "secret", nil, "signing secret to check with, whsec_…, repeatable; others can read a process's arguments, so prefer --secret-file for real ones")
	flags.StringVar(&secretFile, "secret-file", "", "file with signing secrets, separated by white space")
	flags.IntVar(&receiver.Status, "status", http.StatusNoContent, "status to answer with")
	flags.BoolVar(&receiver.ShowBody, "body", false, "print the bodies too")
	flags.StringVar(&tenant, "tenant", "", "with --url: whose events")
	flags.StringVar(&forward, "forward-to", "", "with --url: address events are posted to (default: the receiver)")
	flags.StringSliceVar(&types, "event-type", nil, "with --url: only events of this type, repeatable")
	return sh.clientFlags(cmd)
}

// receive runs the receiver until the context ends.
func (sh *shell) receive(ctx context.Context, receiver *listen.Receiver, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return &config.Refusal{Reason: err.Error()}
	}
	fmt.Fprintf(sh.err, "listening on http://%s\n", l.Addr())
	server := &http.Server{Handler: receiver, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// pull brings events from a server until the context ends.
func (sh *shell) pull(ctx context.Context, receiver *listen.Receiver, address string, p *listen.Puller) error {
	c, err := sh.client()
	if err != nil {
		return err
	}
	p.Client, p.Log = c, sh.logger(config.LogAuto, slog.LevelInfo)
	if p.To != "" {
		p.Forwarded = func(e client.Event, status int) {
			fmt.Fprintf(sh.out, "%s  %s  %s  answered %d\n", time.Now().Format("15:04:05.000"), cell(e.Type), e.ID, status)
		}
		fmt.Fprintf(sh.err, "forwarding new events of %s to %s\n", p.Tenant, p.To)
		return p.Run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return &config.Refusal{Reason: err.Error()}
	}
	server := &http.Server{Handler: receiver, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(l) }() // it ends with Close
	p.To = "http://" + l.Addr().String()
	fmt.Fprintf(sh.err, "showing new events of %s\n", p.Tenant)
	return p.Run(ctx)
}
