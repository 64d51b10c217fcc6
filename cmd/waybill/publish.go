package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/config"
)

func (sh *shell) publish() *cobra.Command {
	var event client.NewEvent
	var tenant, payload string
	cmd := &cobra.Command{
		Use:   "publish [TENANT TYPE [PAYLOAD]]",
		Short: "Publish an event and print its id",
		Long: `Publish an event and print its id. The exit code is 0 only once the event is stored.

The payload is JSON, given as it is, as @FILE, or as - on standard input, which is also read
where none is given; its bytes are delivered as
they are, white space included.`,
		Example: `  waybill publish acme payment.succeeded '{"id":"pay_1"}'
  waybill publish acme payment.succeeded @payment.json --idempotency-key pay_1`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, to := range []*string{&tenant, &event.Type, &payload} {
				if i >= len(args) {
					break
				}
				if *to != "" {
					return usagef("%q is given twice, as a flag and as an argument", args[i])
				}
				*to = args[i]
			}
			if tenant == "" || event.Type == "" {
				return usagef("for whom, and of what type? give TENANT and TYPE")
			}
			body, err := sh.payload(payload)
			if err != nil {
				return err
			}
			return sh.publishEvent(cmd, tenant, event, body)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&tenant, "tenant", "", "whose event")
	flags.StringVar(&event.Type, "type", "", "what happened, as payment.succeeded")
	flags.StringVar(&payload, "payload", "", "JSON, @FILE or - (default: standard input)")
	flags.StringVar(&event.ID, "id", "", "the event's id (default: the server makes one)")
	flags.StringVar(&event.OrderingKey, "ordering-key", "", "events with the same key belong in order")
	flags.StringVar(&event.IdempotencyKey, "idempotency-key", "", "publishing again with it returns the first event")
	flags.StringToStringVar(&event.Metadata, "metadata", nil, "key=value, repeatable")
	return sh.clientFlags(cmd)
}

// payload reads what to publish.
func (sh *shell) payload(text string) ([]byte, error) {
	var body []byte
	var err error
	if text == "" {
		if isTerminal(sh.in) {
			return nil, usagef("what? give the payload as an argument, as @FILE, or on standard input")
		}
		body, err = io.ReadAll(sh.in)
	} else {
		body, err = sh.argument(text)
	}
	if err != nil {
		return nil, err
	}
	// Checked here because it is put into the request as it is.
	if !json.Valid(body) {
		return nil, &config.Refusal{Reason: "the payload is not JSON"}
	}
	return body, nil
}

func (sh *shell) publishEvent(cmd *cobra.Command, tenant string, event client.NewEvent, payload []byte) error {
	c, err := sh.client()
	if err != nil {
		return err
	}
	body, err := client.EventBody(event, payload)
	if err != nil {
		return err
	}
	published, raw, err := client.Call[client.Published](cmd.Context(), c, client.Request{
		Method:  http.MethodPost,
		Path:    scope(tenant, "events"),
		Body:    body,
		Lenient: true,
	})
	if err != nil {
		return err
	}
	if sh.json {
		return sh.printRaw(raw)
	}
	fmt.Fprintln(sh.out, published.ID)
	return nil
}
