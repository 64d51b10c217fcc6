package main

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var keyFields = []field{
	{flag: "scopes", member: "scopes", usage: "of admin, read, write, publish, listen", kind: listField},
	{flag: "tenant", member: "tenant", usage: "the one tenant it is for (default: an operator's key)"},
	{flag: "expires-at", member: "expires_at", usage: "when it ends, such as 2026-12-31T00:00:00Z (default: never)"},
}

func (sh *shell) keys() *cobra.Command {
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a key and print it; it is not shown again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := sh.body(cmd, keyFields, map[string]any{"name": args[0]})
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: client.Path("v1", "keys"), Body: body})
		},
	}
	fieldFlags(create, keyFields)
	listing := &cobra.Command{
		Use: "list", Short: "List keys by their beginnings", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, client.Path("v1", "keys"), []string{"ID", "PREFIX", "NAME", "TENANT", "SCOPES", "EXPIRES", "LAST USED"}, func(k client.Key) []string {
				return []string{k.ID, k.Prefix, k.Name, k.Tenant, strings.Join(k.Scopes, ","), local(k.ExpiresAt), local(k.LastUsedAt)}
			})
		},
	}
	listFlags(listing, "tenant")
	return sh.clientFlags(group("keys", "Keys of the API", create, listing, &cobra.Command{
		Use: "delete ID", Short: "Delete a key; it is refused at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: client.Path("v1", "keys", args[0])})
		},
	}))
}
