package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) why() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "why ID", Short: "Say in words why a delivery is late or dead, or who did not get an event (any tenant's without --tenant)", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sh.client()
			if err != nil {
				return err
			}
			if strings.HasPrefix(args[0], "evt_") {
				return sh.whyEvent(cmd.Context(), c, tenant, args[0])
			}
			d, raw, err := client.Call[client.Delivery](cmd.Context(), c, client.Request{Path: scope(tenant, "deliveries", args[0])})
			if err != nil {
				return err
			}
			if sh.json {
				return sh.printRaw(raw)
			}
			for _, line := range explain(&d, time.Now()) {
				fmt.Fprintln(sh.out, printable(line))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose delivery")
	return sh.clientFlags(cmd)
}

// explained is an event with why endpoints did not get it.
type explained struct {
	client.Event
	NotMatched []struct {
		EndpointID string `json:"endpoint_id"`
		URL        string `json:"url"`
		Reason     string `json:"reason"`
	} `json:"not_matched"`
}

// misses are the reasons in words.
var misses = map[string]string{
	"event_type":    "it does not want events of this type",
	"filter":        "its filter does not let the payload pass",
	"draft":         "it is a draft",
	"created_after": "it was made after the event",
	"deleted":       "it is deleted",
	"changed_since": "it would get the event now; it was changed after the event was routed",
}

// whyEvent says what an event came to, and why endpoints did not get it.
func (sh *shell) whyEvent(ctx context.Context, c *client.Client, tenant, id string) error {
	e, raw, err := client.Call[explained](ctx, c, client.Request{Path: scope(tenant, "events", id), Query: url.Values{"explain": {"true"}}})
	if err != nil {
		return err
	}
	if sh.json {
		return sh.printRaw(raw)
	}
	deliveries, _, err := client.Call[client.Page[client.Delivery]](ctx, c, client.Request{Path: client.Path("v1", "tenants", e.Tenant, "events", id, "deliveries"), Query: url.Values{"limit": {"250"}}})
	if err != nil {
		return err
	}
	fmt.Fprintf(sh.out, "%s of %s, accepted at %s: %s.\n", printable(e.Type), printable(e.Tenant), local(e.CreatedAt), e.State)
	for _, d := range deliveries.Data {
		fmt.Fprintf(sh.out, "%s: %s (%s)\n", printable(d.EndpointURL), d.State, d.ID)
	}
	for _, miss := range e.NotMatched {
		why, known := misses[miss.Reason]
		if !known {
			why = miss.Reason
		}
		fmt.Fprintf(sh.out, "%s did not get it: %s (%s)\n", printable(miss.URL), why, miss.EndpointID)
	}
	return nil
}

// explain says how a delivery stands, one sentence a line.
func explain(d *client.Delivery, now time.Time) []string {
	lines := []string{fmt.Sprintf("%s to %s, for %s.", d.EventType, d.EndpointURL, d.Tenant)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case d.Waiting != nil:
		add("Pending since %s, %s so far.", local(d.CreatedAt), counted(d.AttemptCount, "attempt"))
	case d.FinishedAt != nil:
		add("It was %s at %s, after %s.", d.State, local(*d.FinishedAt), counted(d.AttemptCount, "attempt"))
	}
	if l := d.LastAttempt; l != nil && l.Message != "" {
		add("Last answer: %s", l.Message)
	}
	if w := d.Waiting; w != nil {
		add("It waits (%s): %s", w.Reason, w.Detail)
		if w.Ahead != nil && *w.Ahead > 0 {
			more := ""
			if w.Capped {
				more = "More than "
			}
			add("%s%s of the endpoint before it.", more, counted(*w.Ahead, "delivery"))
		}
		if w.Until != nil {
			add("Until: %s", moment(*w.Until, now))
		}
		if w.ETA != nil {
			add("Probably tried: %s", moment(*w.ETA, now))
		}
	}
	if x := d.Dead; x != nil {
		add("Why (%s): %s", x.Reason, x.Message)
	}
	return lines
}

// moment is a time for people, and how far off it is.
func moment(at, now time.Time) string {
	if left := at.Sub(now).Round(time.Second); left > 0 {
		return fmt.Sprintf("%s (in %s)", local(at), left)
	}
	return local(at) + " (now)"
}

func counted(n int, thing string) string {
	if n != 1 {
		thing = strings.TrimSuffix(thing, "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(thing, "y")]
	}
	return strconv.Itoa(n) + " " + thing
}
