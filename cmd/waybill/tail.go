package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) tail() *cobra.Command {
	var tenant, endpoint string
	var types, outcomes []string
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show attempts as they end, of one tenant or of all",
		Long: `Show attempts as they end, of one tenant or of all, until Ctrl-C. A connection that is cut goes on
where it was. With --json each attempt is an object on a line of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sh.client()
			if err != nil {
				return err
			}
			query := url.Values{"event_type": types, "outcome": outcomes}
			if tenant != "" {
				query.Set("tenant", tenant)
			}
			if endpoint != "" {
				query.Set("endpoint_id", endpoint)
			}
			return c.Follow(cmd.Context(), client.Request{Path: client.Path("v1", "tail"), Query: query}, func(e client.StreamEvent) error {
				switch e.Kind {
				case "attempt":
					return sh.showAttempt(e.Data)
				case "missed":
					fmt.Fprintf(sh.err, "waybill: more than can be shown: %s\n", e.Data)
				}
				return nil
			}, func(cause error) {
				if cause != nil {
					fmt.Fprintf(sh.err, "waybill: %s; trying on\n", oneLine(cause))
				} else {
					fmt.Fprintln(sh.err, "waybill: connected again")
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&tenant, "tenant", "", "only this tenant's")
	flags.StringVar(&endpoint, "endpoint", "", "only those to this endpoint, ep_…")
	flags.StringSliceVar(&types, "event-type", nil, "only events of this type, repeatable")
	flags.StringSliceVar(&outcomes, "outcome", nil, "delivered, transient or permanent, repeatable")
	return sh.clientFlags(cmd)
}

// showAttempt writes an attempt as a line.
func (sh *shell) showAttempt(data []byte) error {
	if sh.json {
		return sh.printRaw(data)
	}
	var a client.SeenAttempt
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("an attempt cannot be read: %w", err)
	}
	answer := a.Kind
	if a.StatusCode != 0 {
		answer = strconv.Itoa(a.StatusCode)
	}
	_, err := fmt.Fprintf(sh.out, "%s  %-9s  %s  %s  %s  attempt %d  %.0f ms  %s\n",
		a.At.Local().Format("15:04:05.000"), a.Outcome, cell(answer), cell(a.Tenant), cell(a.EventType), a.N, a.DurationMS, printable(a.URL))
	return err
}
