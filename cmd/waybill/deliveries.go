package main

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

var deliveryHeader = []string{"TIME", "TYPE", "STATE", "ATTEMPTS", "LAST ANSWER", "WHY", "ID"}

func deliveryRow(d client.Delivery) []string {
	answer, why := "", ""
	if d.LastAttempt != nil {
		answer = d.LastAttempt.Kind
		if d.LastAttempt.StatusCode != 0 {
			answer = strconv.Itoa(d.LastAttempt.StatusCode)
		}
	}
	switch {
	case d.Dead != nil:
		why = d.Dead.Reason
	case d.Waiting != nil:
		why = d.Waiting.Reason
	}
	return []string{local(d.CreatedAt), d.EventType, d.State, strconv.Itoa(d.AttemptCount), answer, why, d.ID}
}

func (sh *shell) deliveries() *cobra.Command {
	var tenant string
	listing := &cobra.Command{
		Use: "list", Short: "List deliveries, of one tenant or of all", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd, sh, scope(tenant, "deliveries"), deliveryHeader, deliveryRow)
		},
	}
	listFlags(listing, "state", "endpoint_id", "event_id", "event_type", "kind", "reason", "status_code", "from", "to", "order")
	attempts := &cobra.Command{
		Use: "attempts ID", Short: "List the attempts of a delivery (any tenant's without --tenant)", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return list(cmd, sh, scope(tenant, "deliveries", args[0], "attempts"), []string{"N", "TIME", "TRIGGER", "OUTCOME", "STATUS", "MS", "MESSAGE"}, func(a client.Attempt) []string {
				status := ""
				if a.StatusCode != 0 {
					status = strconv.Itoa(a.StatusCode)
				}
				return []string{strconv.Itoa(a.N), local(a.At), a.Trigger, a.Outcome, status, strconv.FormatFloat(a.DurationMS, 'f', 1, 64), a.Message}
			})
		},
	}
	listFlags(attempts, "order")
	cmd := group("deliveries", "Events on their way to one endpoint each",
		listing, attempts,
		&cobra.Command{
			Use: "get ID", Short: "Show a delivery (any tenant's without --tenant)", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return sh.send(cmd, client.Request{Path: scope(tenant, "deliveries", args[0])})
			},
		},
		sh.replayCommand("replay ID", &tenant))
	cmd.PersistentFlags().StringVar(&tenant, "tenant", "", "whose deliveries")
	return sh.clientFlags(cmd)
}

func (sh *shell) replay() *cobra.Command {
	var tenant string
	cmd := sh.replayCommand("replay ID", &tenant)
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose delivery (any tenant's without)")
	return sh.clientFlags(cmd)
}

// replayCommand sends a delivery again.
func (sh *shell) replayCommand(use string, tenant *string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: "Send a delivery again: a dead or delivered one once more, a pending one now", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sh.client()
			if err != nil {
				return err
			}
			answer, raw, err := client.Call[client.Replayed](cmd.Context(), c, client.Request{Method: http.MethodPost, Path: scope(*tenant, "deliveries", args[0], "replay")})
			if err != nil {
				return err
			}
			if sh.json {
				return sh.printRaw(raw)
			}
			fmt.Fprintf(sh.out, "%s was %s and is sent again\n", args[0], cell(answer.Was))
			return nil
		},
	}
}
