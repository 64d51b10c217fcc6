package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var endpointFields = []field{
	{flag: "description", member: "description", usage: "what people call it"},
	{flag: "event-types", member: "event_types", usage: "types it wants: exact, prefix.* or * (default *)", kind: listField},
	{flag: "header", member: "headers", usage: "name=value, sent with every delivery, repeatable", kind: mapField},
	{flag: "metadata", member: "metadata", usage: "key=value, repeatable", kind: mapField},
	{flag: "max-in-flight", member: "max_in_flight", usage: "attempts at once (default: the tenant's)", kind: intField},
	{flag: "rate-limit", member: "rate_limit", usage: "COUNT/SECONDS, such as 50/1, or none", kind: rateField},
	{flag: "timeout-seconds", member: "timeout_seconds", usage: "1 to 30 (default 10)", kind: floatField},
	{flag: "state", member: "state", usage: "draft, active, paused or disabled"},
}

var (
	endpointUID     = field{flag: "uid", member: "uid", usage: "your own name for it, unique within the tenant"}
	endpointURL     = field{flag: "to", member: "url", usage: "address deliveries go to"}
	endpointBacklog = field{flag: "backlog", member: "backlog", usage: "with --state active: deliver or discard what waited"}
)

func (sh *shell) endpoints() *cobra.Command {
	var tenant string
	listing := &cobra.Command{
		Use: "list", Short: "List endpoints, of one tenant or of all", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, scope(tenant, "endpoints"), []string{"ID", "TENANT", "UID", "STATE", "BREAKER", "PENDING", "EVENT TYPES", "URL"}, func(e client.Endpoint) []string {
				pending := strconv.Itoa(e.Health.Pending)
				if e.Health.Capped {
					pending += "+"
				}
				return []string{e.ID, e.Tenant, e.UID, e.State, e.Health.Breaker, pending, strings.Join(e.EventTypes, ","), e.URL}
			})
		},
	}
	listFlags(listing, "state", "event_type")

	createFields := append([]field{endpointUID}, endpointFields...)
	create := &cobra.Command{
		Use: "create URL", Short: "Make an endpoint; its secret is shown this once", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTenant(tenant); err != nil {
				return err
			}
			more := map[string]any{}
			if len(args) == 1 {
				more["url"] = args[0]
			} else if !cmd.Flags().Changed("body") {
				return usagef("where to? give the URL, or --body")
			}
			body, err := sh.body(cmd, createFields, more)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(tenant, "endpoints"), Body: body})
		},
	}
	fieldFlags(create, createFields)

	putFields := append([]field{endpointURL}, endpointFields...)
	put := &cobra.Command{
		Use: "put UID", Short: "Make the endpoint with this uid, or change it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sh.change(cmd, http.MethodPut, tenant, args[0], putFields)
		},
	}
	fieldFlags(put, putFields)

	updateFields := append([]field{endpointURL, endpointBacklog}, endpointFields...)
	update := &cobra.Command{
		Use: "update ID|UID", Short: "Change an endpoint", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sh.change(cmd, http.MethodPatch, tenant, args[0], updateFields)
		},
	}
	fieldFlags(update, updateFields)

	cmd := group("endpoints", "Where your customers want their events",
		listing, create, put, update,
		&cobra.Command{
			Use: "get ID|UID", Short: "Show an endpoint (by id alone without --tenant)", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: scope(tenant, "endpoints", args[0])})
			},
		},
		&cobra.Command{
			Use: "delete ID|UID", Short: "Delete an endpoint and cancel what is pending", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := needTenant(tenant); err != nil {
					return err
				}
				return sh.send(cmd, client.Request{Method: http.MethodDelete, Path: scope(tenant, "endpoints", args[0])})
			},
		},
		&cobra.Command{
			Use: "probe ID|UID", Short: "Try the oldest waiting delivery now, open breaker or not", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := needTenant(tenant); err != nil {
					return err
				}
				return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(tenant, "endpoints", args[0], "probe")})
			},
		},
		sh.testEndpoint(&tenant),
		sh.rotateSecret(&tenant))
	cmd.PersistentFlags().StringVar(&tenant, "tenant", "", "whose endpoints")
	return sh.clientFlags(cmd)
}

// change sends the fields that were given to one endpoint.
func (sh *shell) change(cmd *cobra.Command, method, tenant, name string, fields []field) error {
	if err := needTenant(tenant); err != nil {
		return err
	}
	body, err := sh.body(cmd, fields, nil)
	if err != nil {
		return err
	}
	return sh.send(cmd, client.Request{Method: method, Path: scope(tenant, "endpoints", name), Body: body})
}

// testEndpoint sends an endpoint an event of its own.
func (sh *shell) testEndpoint(tenant *string) *cobra.Command {
	var eventType, payload string
	cmd := &cobra.Command{
		Use: "test ID|UID", Short: "Send an endpoint a test event, whatever its state", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTenant(*tenant); err != nil {
				return err
			}
			// By hand: encoding/json would drop the payload's white space.
			var members []string
			if eventType != "" {
				quoted, err := json.Marshal(eventType)
				if err != nil {
					return err
				}
				members = append(members, `"type":`+string(quoted))
			}
			if payload != "" {
				own, err := sh.argument(payload)
				if err != nil {
					return err
				}
				members = append(members, `"payload":`+string(own))
			}
			body := []byte("{" + strings.Join(members, ",") + "}")
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(*tenant, "endpoints", args[0], "test"), Body: body})
		},
	}
	cmd.Flags().StringVar(&eventType, "type", "", "of the event (default waybill.test)")
	cmd.Flags().StringVar(&payload, "payload", "", "JSON, @FILE or @- (standard input)")
	return cmd
}

// rotateSecret gives an endpoint a new signing secret.
func (sh *shell) rotateSecret(tenant *string) *cobra.Command {
	const overlap, secret = "overlap-seconds", "secret"
	cmd := &cobra.Command{
		Use: "rotate-secret ID|UID", Short: "Make a new signing secret; it is shown this once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTenant(*tenant); err != nil {
				return err
			}
			members := map[string]any{}
			if cmd.Flags().Changed(overlap) {
				seconds, err := cmd.Flags().GetFloat64(overlap)
				if err != nil {
					return err
				}
				members["overlap_seconds"] = seconds
			}
			if cmd.Flags().Changed(secret) {
				from, err := cmd.Flags().GetString(secret)
				if err != nil {
					return err
				}
				own, err := sh.argument(from)
				if err != nil {
					return err
				}
				members["secret"] = strings.TrimSpace(string(own))
			}
			body, err := json.Marshal(members)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(*tenant, "endpoints", args[0], "secret", "rotate"), Body: body})
		},
	}
	cmd.Flags().Float64(overlap, 86400, "how long the old ones go on signing too; 0: they end at once")
	cmd.Flags().String(secret, "", "your own, @FILE or @- (standard input), instead of a new one")
	return cmd
}
