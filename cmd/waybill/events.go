package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) events() *cobra.Command {
	var tenant string
	listing := &cobra.Command{
		Use: "list", Short: "List a tenant's events, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needTenant(tenant); err != nil {
				return err
			}
			return list(cmd, sh, scope(tenant, "events"), []string{"TIME", "TYPE", "STATE", "ID"}, func(e client.Event) []string {
				return []string{local(e.CreatedAt), e.Type, e.State, e.ID}
			})
		},
	}
	listFlags(listing, "event_type", "state", "from", "to", "order")

	payload := &cobra.Command{
		Use: "payload ID", Short: "Print an event's payload, byte for byte", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTenant(tenant); err != nil {
				return err
			}
			c, err := sh.client()
			if err != nil {
				return err
			}
			body, err := c.Do(cmd.Context(), client.Request{Path: scope(tenant, "events", args[0], "payload")})
			if err != nil {
				return err
			}
			_, err = sh.out.Write(body)
			return err
		},
	}
	deliveries := &cobra.Command{
		Use: "deliveries ID", Short: "List the deliveries of an event", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTenant(tenant); err != nil {
				return err
			}
			return list(cmd, sh, scope(tenant, "events", args[0], "deliveries"), deliveryHeader, deliveryRow)
		},
	}
	listFlags(deliveries)
	get := &cobra.Command{
		Use: "get ID", Short: "Show an event (any tenant's without --tenant)", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sh.send(cmd, client.Request{Path: scope(tenant, "events", args[0])})
		},
	}
	cmd := group("events", "What happened", listing, get, payload, deliveries)
	cmd.PersistentFlags().StringVar(&tenant, "tenant", "", "whose events")
	return sh.clientFlags(cmd)
}
