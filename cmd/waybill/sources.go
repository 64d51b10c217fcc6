package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var sourceFields = []field{
	{flag: "provider", member: "provider", usage: "who sends: stripe, github, svix … or custom"},
	{flag: "tenant", member: "tenant", usage: "whose events they become"},
	{flag: "event-type", member: "event_type", usage: "of the events; {topic} is the provider's own word"},
	{flag: "forward-headers", member: "forward_headers", usage: "headers that go on with an event", kind: listField},
	{flag: "max-body", member: "max_body", usage: "bytes of the largest body", kind: intField},
	{flag: "keep-seconds", member: "keep_seconds", usage: "how long requests are kept and their ids remembered", kind: intField},
	{flag: "state", member: "state", usage: "active or paused"},
}

func (sh *shell) inboundSources() *cobra.Command {
	listing := &cobra.Command{
		Use: "list", Short: "List sources", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, client.Path("v1", "sources"), []string{"SOURCE", "PROVIDER", "TENANT", "STATE", "WARNINGS"}, func(s client.Source) []string {
				return []string{s.Name, s.Provider, s.Tenant, s.State, fmt.Sprint(len(s.Warnings))}
			})
		},
	}
	listFlags(listing)
	put := &cobra.Command{
		Use: "put NAME", Short: "Make a source, or change one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			more := map[string]any{}
			if cmd.Flags().Changed("secret") {
				secret, err := sh.secret(cmd)
				if err != nil {
					return err
				}
				more["secrets"] = []string{secret}
			}
			body, err := sh.body(cmd, sourceFields, more)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPut, Path: client.Path("v1", "sources", args[0]), Body: body})
		},
	}
	fieldFlags(put, sourceFields)
	put.Flags().String("secret", "", "the provider's signing secret, @FILE or - (standard input); it replaces those before")
	requests := &cobra.Command{
		Use: "requests NAME", Short: "List what arrived at a source", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return list(cmd, sh, client.Path("v1", "sources", args[0], "requests"), []string{"ID", "AT", "OUTCOME", "PROVIDER ID", "TOPIC", "EVENT", "DETAIL"}, func(r client.InboundRequest) []string {
				return []string{r.ID, r.At, r.Outcome, r.ProviderID, r.Topic, r.EventID, r.Detail}
			})
		},
	}
	listFlags(requests, "outcome")
	add := &cobra.Command{
		Use: "add-secret NAME", Short: "Add a signing secret beside those there are", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := sh.secret(cmd)
			if err != nil {
				return err
			}
			members := map[string]any{"secret": secret}
			if cmd.Flags().Changed("overlap-seconds") {
				if members["overlap_seconds"], err = cmd.Flags().GetFloat64("overlap-seconds"); err != nil {
					return err
				}
			}
			body, err := json.Marshal(members)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: client.Path("v1", "sources", args[0], "secrets"), Body: body})
		},
	}
	add.Flags().String("secret", "-", "the secret, @FILE or - (standard input)")
	add.Flags().Float64("overlap-seconds", 0, "when those before it end; without it they stay")
	return sh.clientFlags(group("sources", "Where other people's webhooks arrive",
		listing, put, requests, add,
		&cobra.Command{
			Use: "request NAME ID", Short: "Show what arrived, a quarantined one with its body", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: client.Path("v1", "sources", args[0], "requests", args[1])})
			},
		},
		&cobra.Command{
			Use: "release NAME ID", Short: "Make a quarantined request an event after all", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Method: http.MethodPost, Path: client.Path("v1", "sources", args[0], "requests", args[1], "release")})
			},
		},
		&cobra.Command{
			Use: "get NAME", Short: "Show a source", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: client.Path("v1", "sources", args[0])})
			},
		},
		&cobra.Command{
			Use: "end-secret NAME ID", Short: "End a signing secret", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: client.Path("v1", "sources", args[0], "secrets", args[1])})
			},
		},
		&cobra.Command{
			Use: "delete NAME", Short: "Delete a source; its events stay", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: client.Path("v1", "sources", args[0])})
			},
		}))
}

// secret reads --secret. A file and standard input end with a line break that is no part of it.
func (sh *shell) secret(cmd *cobra.Command) (string, error) {
	text, err := cmd.Flags().GetString("secret")
	if err != nil {
		return "", err
	}
	read, err := sh.argument(text)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(read), "\r\n"), nil
}
