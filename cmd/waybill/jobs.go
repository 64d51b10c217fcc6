package main

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var jobFields = []field{
	{flag: "from", member: "from", usage: "events at or after this time (RFC 3339)"},
	{flag: "to", member: "to", usage: "events before this time"},
	{flag: "endpoint-id", member: "endpoint_id", usage: "one endpoint's only"},
	{flag: "event-types", member: "event_types", usage: "only these: exact, prefix.* or *", kind: listField},
}

var (
	replayFields = append(jobFields[:len(jobFields):len(jobFields)],
		field{flag: "state", member: "state", usage: "dead, delivered, cancelled, missing or all (default dead)"},
		field{flag: "delivery-ids", member: "delivery_ids", usage: "only these, up to 1,000; --from and --to may then be left out", kind: listField},
		field{flag: "rate-per-second", member: "rate_per_second", usage: "how many may start a second", kind: floatField})
	cancellationFields = append(jobFields[:len(jobFields):len(jobFields)],
		field{flag: "event-ids", member: "event_ids", usage: "only those of these, up to 1,000; --from and --to may then be left out", kind: listField},
		field{flag: "reason", member: "reason", usage: "shown with every delivery it ends"})
	erasureFields = append(slices.DeleteFunc(slices.Clone(jobFields), func(f field) bool { return f.flag == "endpoint-id" }),
		field{flag: "metadata", member: "metadata", usage: "only events that have this: key=value, repeatable", kind: mapField},
		field{flag: "event-ids", member: "event_ids", usage: "only these, up to 1,000", kind: listField},
		field{flag: "reason", member: "reason", usage: "for people"})
)

func (sh *shell) replays() *cobra.Command {
	return sh.jobs("replays", "replay", "Deliver many again: a range, or chosen ones", "Deliver many again, or count them", replayFields)
}

func (sh *shell) cancellations() *cobra.Command {
	return sh.jobs("cancellations", "cancellation", "Cancel many pending deliveries", "Cancel many pending deliveries, or count them", cancellationFields)
}

func (sh *shell) erasures() *cobra.Command {
	return sh.jobs("erasures", "erasure", "Erase the bytes of many events, such as one person's", "Erase the bytes of many events, or count them", erasureFields)
}

func jobRow(j client.Job) []string {
	n := strconv.Itoa
	return []string{local(j.CreatedAt), j.Tenant, j.State, n(j.Matched), n(j.Done), n(j.Delivered), n(j.Failed), n(j.Skipped), j.CreatedBy, j.ID}
}

// jobs are the commands of replays, cancellations and erasures.
func (sh *shell) jobs(noun, one, short, about string, fields []field) *cobra.Command {
	var tenant string
	listing := &cobra.Command{
		Use: "list", Short: "List " + noun + ", of one tenant or of all, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, scope(tenant, noun), []string{"TIME", "TENANT", "STATE", "MATCHED", "DONE", "DELIVERED", "FAILED", "SKIPPED", "BY", "ID"}, jobRow)
		},
	}
	listFlags(listing, "order")
	create := &cobra.Command{
		Use: "create", Short: about, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needTenant(tenant); err != nil {
				return err
			}
			more := map[string]any{}
			if dry, err := cmd.Flags().GetBool("dry-run"); err != nil {
				return err
			} else if dry && cmd.Flags().Changed("body") {
				return usagef("--body and --dry-run exclude each other")
			} else if dry {
				more["dry_run"] = true
			}
			body, err := sh.body(cmd, fields, more)
			if err != nil {
				return err
			}
			return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(tenant, noun), Body: body})
		},
	}
	fieldFlags(create, fields)
	create.Flags().Bool("dry-run", false, "count, and do nothing")
	cmd := group(noun, short, listing, create,
		&cobra.Command{
			Use: "get ID", Short: "Show a " + one + " and how far it is (any tenant's without --tenant)", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: scope(tenant, noun, args[0])})
			},
		},
		&cobra.Command{
			Use: "cancel ID", Short: "Stop a " + one, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := needTenant(tenant); err != nil {
					return err
				}
				return sh.send(cmd, client.Request{Method: http.MethodPost, Path: scope(tenant, noun, args[0], "cancel")})
			},
		})
	cmd.PersistentFlags().StringVar(&tenant, "tenant", "", "whose "+noun)
	return sh.clientFlags(cmd)
}
