package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) prune() *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove old events and attempts before their time",
		Long: `Remove events and attempts that were accepted before a time, as retention would: by whole days, in
the background of the server. What is pending stays, and so do dead letters with all they need.
To keep a copy, run waybill export first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if before == "" {
				return usagef("before what? give --before, such as --before 2026-11-01T00:00:00Z")
			}
			body, err := json.Marshal(map[string]string{"before": before})
			if err != nil {
				return err
			}
			c, err := sh.client()
			if err != nil {
				return err
			}
			done, raw, err := client.Call[client.Pruned](cmd.Context(), c, client.Request{Method: http.MethodPost, Path: client.Path("v1", "prune"), Body: body})
			if err != nil {
				return err
			}
			if sh.json {
				return sh.printRaw(raw)
			}
			fmt.Fprintf(sh.out, "what was accepted before %s is being removed\n", done.Before.UTC().Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "RFC 3339; its day and later ones are kept")
	return sh.clientFlags(cmd)
}

// exported is a line of waybill export.
type exported struct {
	Kind     string           `json:"kind"` // event, delivery, attempt
	Event    *client.Event    `json:"event,omitempty"`
	Payload  *string          `json:"payload_base64,omitempty"` // absent where the bytes are gone
	Delivery *client.Delivery `json:"delivery,omitempty"`
	Of       string           `json:"delivery_id,omitempty"` // whose attempt it is
	Attempt  json.RawMessage  `json:"attempt,omitempty"`
}

func (sh *shell) export() *cobra.Command {
	var tenant, from, to string
	var payloads bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write events, deliveries and attempts as lines of JSON",
		Long: `Write everything that was accepted in a time, oldest first, a line of JSON each: the event with its
payload in base64, its deliveries, and their attempts. It reads through the API, page by page, so it
disturbs nobody and can be ended and begun again with another --from.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sh.client()
			if err != nil {
				return err
			}
			x := &export{cmd: cmd, client: c, lines: json.NewEncoder(sh.out), span: url.Values{"order": {"asc"}, "limit": {"250"}}, payloads: payloads}
			for name, value := range map[string]string{"from": from, "to": to} {
				if value != "" {
					x.span.Set(name, value)
				}
			}
			if tenant != "" {
				return x.tenant(tenant)
			}
			return pages(cmd, c, client.Path("v1", "tenants"), url.Values{"order": {"asc"}, "limit": {"250"}}, func(t client.Tenant) error {
				return x.tenant(t.Key)
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "one tenant's only")
	cmd.Flags().StringVar(&from, "from", "", "RFC 3339: events accepted at or after it")
	cmd.Flags().StringVar(&to, "to", "", "RFC 3339: events accepted before it")
	cmd.Flags().BoolVar(&payloads, "payloads", true, "with the payloads' bytes")
	return sh.clientFlags(cmd)
}

// export is one run of the command.
type export struct {
	cmd      *cobra.Command
	client   *client.Client
	lines    *json.Encoder
	span     url.Values
	payloads bool
}

func (x *export) tenant(key string) error {
	return pages(x.cmd, x.client, scope(key, "events"), x.span, func(e client.Event) error {
		line := exported{Kind: "event", Event: &e}
		if x.payloads {
			bytes, err := x.client.Do(x.cmd.Context(), client.Request{Path: scope(key, "events", e.ID, "payload")})
			switch refused, ok := err.(*client.Error); {
			case ok && refused.Status == http.StatusGone: // erased; what is known of the event is not
			case err != nil:
				return err
			default:
				text := base64.StdEncoding.EncodeToString(bytes)
				line.Payload = &text
			}
		}
		if err := x.lines.Encode(line); err != nil {
			return err
		}
		return pages(x.cmd, x.client, scope(key, "events", e.ID, "deliveries"), nil, func(d client.Delivery) error {
			if err := x.lines.Encode(exported{Kind: "delivery", Delivery: &d}); err != nil {
				return err
			}
			return pages(x.cmd, x.client, scope(key, "deliveries", d.ID, "attempts"), nil, func(a json.RawMessage) error {
				return x.lines.Encode(exported{Kind: "attempt", Of: d.ID, Attempt: a})
			})
		})
	})
}

// pages calls each with every row of a list.
func pages[T any](cmd *cobra.Command, c *client.Client, path string, query url.Values, each func(T) error) error {
	query = url.Values(http.Header(query).Clone())
	if query == nil {
		query = url.Values{"limit": {"250"}, "order": {"asc"}}
	}
	for {
		page, _, err := client.Call[client.Page[T]](cmd.Context(), c, client.Request{Path: path, Query: query})
		if err != nil {
			return err
		}
		for _, row := range page.Data {
			if err := each(row); err != nil {
				return err
			}
		}
		if page.NextCursor == nil {
			return nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}
