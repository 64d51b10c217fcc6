package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) find() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "find TEXT",
		Short: "Find things by any id, key, name, uid or host",
		Long: `Find things by whatever is at hand: any id, a tenant's key or name, an endpoint's uid, URL, description
or metadata; with --tenant also an idempotency key or a value of an event's metadata. It exits with
3 if nothing is found.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sh.client()
			if err != nil {
				return err
			}
			query := url.Values{"q": {args[0]}}
			if tenant != "" {
				query.Set("tenant", tenant)
			}
			found, raw, err := client.Call[client.Search](cmd.Context(), c, client.Request{Path: client.Path("v1", "search"), Query: query})
			if err != nil {
				return err
			}
			if len(found.Data) == 0 {
				return &client.Error{Status: 404, Detail: "nothing is found"}
			}
			if sh.json {
				return sh.printRaw(raw)
			}
			var rows [][]string
			for _, f := range found.Data {
				rows = append(rows, []string{f.Type, f.ID, f.Tenant, f.Title, f.By})
			}
			return sh.table([]string{"WHAT", "ID", "TENANT", "TITLE", "FOUND BY"}, rows)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant's")
	return sh.clientFlags(cmd)
}
