package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/signature"
)

func (sh *shell) sign() *cobra.Command {
	var f received
	var id string
	cmd := &cobra.Command{
		Use:   "sign",
		Short: "Sign a body as a provider would, and print the headers",
		Long: `Sign a body as a provider would, now, and print the headers, one a line, as curl reads them. No
server is asked. Of a scheme with a public key the secret is the private one.`,
		Example: `  waybill sign --provider stripe --secret-file secret.txt --body event.json |
    curl -H @- --data-binary @event.json http://localhost:8080/stripe`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := f.read(sh.in)
			if err != nil {
				return err
			}
			s, ok := r.Provider.Scheme.(signature.SigningScheme)
			if !ok || len(s.Headers()) == 0 {
				return usagef("%s cannot be signed for: its signature is not in a header, or needs its own key", r.Provider.Name)
			}
			key, err := s.Key(r.Secret)
			if err != nil {
				return usagef("%s", err)
			}
			if h := r.Provider.ID.Header; h != "" {
				r.Header.Set(h, id)
			}
			if _, form := s.(signature.TwilioForm); form {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			if err := s.Sign(&r.Request, id, []signature.Key{key}, r.At); err != nil {
				return usagef("%s", err)
			}
			return sh.printHeader(r.Header)
		},
	}
	flags := cmd.Flags()
	f.flags(flags)
	flags.StringVar(&f.at, "at", "", "when it is signed, as RFC 3339 (default: now)")
	flags.StringVar(&id, "id", fmt.Sprintf("evt_%d", time.Now().UnixNano()), "the event's id, where it travels in a header")
	flags.Lookup("id").DefValue = "a new one"
	cmd.MarkFlagsMutuallyExclusive("secret", "secret-file")
	_ = cmd.MarkFlagRequired("body")
	return cmd
}

func (sh *shell) printHeader(header http.Header) error {
	if sh.json {
		return sh.printJSON(header)
	}
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(sh.out, "%s: %s\n", name, strings.Join(header[name], ", "))
	}
	return nil
}
