package main

import (
	"bytes"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/version"
)

// openapi prints the document that programs which talk to the API are made from.
func (sh *shell) openapi() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI document of the HTTP API",
		Long:  "Print the OpenAPI 3.1 document that a server of this build answers at /openapi.json, indented. No server and no database are needed.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			document, err := api.Document(version.String())
			if err != nil {
				return err
			}
			var out bytes.Buffer
			if err := json.Indent(&out, document, "", "  "); err != nil {
				return err
			}
			out.WriteByte('\n')
			_, err = sh.out.Write(out.Bytes())
			return err
		},
	}
}
