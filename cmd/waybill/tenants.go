package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var tenantFields = []field{
	{flag: "name", member: "name", usage: "what people call it"},
	{flag: "weight", member: "weight", usage: "share of the work under load (default 1)", kind: floatField},
	{flag: "max-in-flight", member: "max_in_flight", usage: "attempts at once (default 10)", kind: intField},
	{flag: "state", member: "state", usage: "active or paused"},
	{flag: "egress", member: "egress", usage: "public or internal"},
	{flag: "metadata", member: "metadata", usage: "key=value, repeatable", kind: mapField},
}

func (sh *shell) tenants() *cobra.Command {
	listing := &cobra.Command{
		Use: "list", Short: "List tenants", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, client.Path("v1", "tenants"), []string{"KEY", "NAME", "STATE", "WEIGHT", "MAX IN FLIGHT"}, func(t client.Tenant) []string {
				return []string{t.Key, t.Name, t.State, fmt.Sprint(t.Weight), fmt.Sprint(t.MaxInFlight)}
			})
		},
	}
	listFlags(listing, "q", "state")
	put := &cobra.Command{
		Use: "put KEY", Short: "Make a tenant, or change one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := sh.body(cmd, tenantFields, nil)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPut, Path: client.Path("v1", "tenants", args[0]), Body: body})
		},
	}
	fieldFlags(put, tenantFields)
	return sh.clientFlags(group("tenants", "Your customers",
		listing, put,
		&cobra.Command{
			Use: "get KEY", Short: "Show a tenant", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: client.Path("v1", "tenants", args[0])})
			},
		},
		&cobra.Command{
			Use: "delete KEY", Short: "Delete a tenant and cancel what is pending", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: client.Path("v1", "tenants", args[0])})
			},
		}))
}
