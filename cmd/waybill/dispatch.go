package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

func (sh *shell) pause() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "pause", Short: "Stop sending on all nodes; publishing goes on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sh.dispatch(cmd, client.Dispatch{State: "paused", Reason: reason},
				"nothing is sent any more, on any node within 5 s; what is published waits until waybill resume")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "for the other operators")
	return sh.clientFlags(cmd)
}

func (sh *shell) resume() *cobra.Command {
	return sh.clientFlags(&cobra.Command{
		Use: "resume", Short: "Start sending again after waybill pause", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sh.dispatch(cmd, client.Dispatch{State: "running"}, "sending goes on, on all nodes within 5 s")
		},
	})
}

// dispatch sets the stop switch.
func (sh *shell) dispatch(cmd *cobra.Command, state client.Dispatch, done string) error {
	body, err := json.Marshal(state)
	if err != nil {
		return err
	}
	c, err := sh.client()
	if err != nil {
		return err
	}
	answer, err := c.Do(cmd.Context(), client.Request{Method: http.MethodPut, Path: client.Path("v1", "dispatch"), Body: body})
	if err != nil {
		return err
	}
	if sh.json {
		return sh.printRaw(answer)
	}
	fmt.Fprintln(sh.out, done)
	return nil
}
