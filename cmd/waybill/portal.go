package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var linkFields = []field{
	{flag: "expires-in-seconds", member: "expires_in_seconds", usage: "how long the session lives", kind: floatField},
	{flag: "link-expires-in-seconds", member: "link_expires_in_seconds", usage: "how long the link may wait (default 300)", kind: floatField},
	{flag: "path", member: "path", usage: "where to begin, such as /deliveries"},
}

var portalLinkFields = append([]field{
	{flag: "permissions", member: "permissions", usage: "of view, replay, manage, secrets (default all)", kind: listField},
	{flag: "return-url", member: "return_url", usage: "where the portal's way back leads"},
	{flag: "theme", member: "theme", usage: "light, dark or auto"},
}, linkFields...)

func (sh *shell) portal() *cobra.Command {
	link := &cobra.Command{
		Use: "link TENANT", Short: "Print a link that lets a customer into the portal, once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sh.link(cmd, portalLinkFields, scope(args[0], "portal-sessions"))
		},
	}
	linkFlags(link, portalLinkFields)
	signIn := &cobra.Command{
		Use: "sign-in", Short: "Print a link that lets an operator into the dashboard, once", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sh.link(cmd, linkFields, scope("", "operator-sessions"))
		},
	}
	linkFlags(signIn, linkFields)

	var tenant string
	listing := &cobra.Command{
		Use: "sessions", Short: "List a tenant's links and sessions, or the operators'", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, sessionPath(tenant), []string{"ID", "STATE", "USER", "PERMISSIONS", "EXPIRES", "MADE BY"}, func(s client.Session) []string {
				return []string{s.ID, s.State, s.User.Label(), strings.Join(s.Permissions, ","), local(s.ExpiresAt), s.CreatedBy}
			})
		},
	}
	listing.Flags().StringVar(&tenant, "tenant", "", "whose (default: the operators')")
	listFlags(listing)

	var from string
	var all bool
	revoke := &cobra.Command{
		Use: "revoke [ID]", Short: "End a session or take back its link, or --all of a tenant's", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return usagef("give the id of a session, or --all")
			}
			return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: sessionPath(from, args...)})
		},
	}
	revoke.Flags().StringVar(&from, "tenant", "", "whose (default: the operators')")
	revoke.Flags().BoolVar(&all, "all", false, "every session, and every link that nobody has used")
	return sh.clientFlags(group("portal", "Let people into the portal and the dashboard", link, signIn, listing, revoke))
}

func sessionPath(tenant string, more ...string) string {
	if tenant == "" {
		return scope("", append([]string{"operator-sessions"}, more...)...)
	}
	return scope(tenant, append([]string{"portal-sessions"}, more...)...)
}

// linkFlags adds what the fields of a body alone do not cover.
func linkFlags(cmd *cobra.Command, fields []field) {
	fieldFlags(cmd, fields)
	cmd.Flags().Bool("read-only", false, "the session may look and nothing else")
	cmd.Flags().String("user", "", "id of the person it is for, for the record")
}

// link makes a link and prints it alone, so that it can be piped into whatever opens it.
func (sh *shell) link(cmd *cobra.Command, fields []field, path string) error {
	more := map[string]any{}
	if readOnly, err := cmd.Flags().GetBool("read-only"); err == nil && readOnly {
		more["read_only"] = true
	}
	if user, err := cmd.Flags().GetString("user"); err == nil && user != "" {
		more["user"] = map[string]string{"id": user}
	}
	body, err := sh.body(cmd, fields, more)
	if err != nil {
		return err
	}
	c, err := sh.client()
	if err != nil {
		return err
	}
	made, raw, err := client.Call[client.Link](cmd.Context(), c, client.Request{Method: http.MethodPost, Path: path, Body: body})
	if err != nil {
		return err
	}
	if sh.json {
		return sh.printRaw(raw)
	}
	fmt.Fprintln(sh.out, made.URL)
	fmt.Fprintf(sh.err, "it works once, until %s; the session lasts until %s\n", local(made.LinkExpiresAt), local(made.ExpiresAt.Round(time.Second)))
	return nil
}
