package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/sigcheck"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

// received are the flags of a request that arrived somewhere.
type received struct {
	provider, secret, secretFile string
	header                       []string
	body, request, url, at       string
	own                          signature.HMAC
}

func (sh *shell) verifySignature() *cobra.Command {
	var f received
	cmd := &cobra.Command{
		Use:   "verify-signature",
		Short: "Say in words why a webhook's signature does not verify",
		Long: `Verify a webhook's signature, and say in words why it does not verify: which change of the body, of
the secret or of the provider would explain it. No server is asked. The exit code is 0 if the
signature is right, and 1 if not.

The request is a file with the whole of it (--request: request line, headers, empty line, body), or
its headers and its body. Give the body's bytes as they arrived.`,
		Example: `  waybill verify-signature --provider stripe --secret-file secret.txt --header "Stripe-Signature: t=…,v1=…" --body body.json
  waybill verify-signature --provider github --secret-file secret.txt --request request.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.read(sh.in)
			if err != nil {
				return err
			}
			result, err := sigcheck.Explain(cmd.Context(), r)
			if errors.Is(err, signature.ErrSecret) {
				return usagef("%s", err)
			}
			if err != nil {
				return err
			}
			if err := sh.printResult(result); err != nil {
				return err
			}
			if !result.Verified {
				return errCheckFailed
			}
			return nil
		},
	}
	flags := cmd.Flags()
	f.flags(flags)
	flags.StringArrayVar(&f.header, "header", nil, `header of the request, "Name: value"; repeatable`)
	flags.StringVar(&f.request, "request", "", "file with the whole request; - for standard input")
	flags.StringVar(&f.at, "at", "", "when it arrived, as RFC 3339 (default: now)")
	cmd.MarkFlagsMutuallyExclusive("secret", "secret-file")
	cmd.MarkFlagsMutuallyExclusive("request", "body")
	return cmd
}

// flags are what signing and verifying have in common.
func (f *received) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.provider, "provider", "", "who signs: "+strings.Join(providerNames(), ", ")+"; or hmac, with --signature-header, --form and --signed")
	flags.StringVar(&f.secret, "secret", "", "the signing secret; others on this machine may see it, --secret-file is better")
	flags.StringVar(&f.secretFile, "secret-file", "", "file with the signing secret, read to its last byte but one line's end")
	flags.StringVar(&f.body, "body", "", "file with the request's body; - for standard input")
	flags.StringVar(&f.url, "url", "", "address as the provider knows it, where it is signed (Twilio, Square)")
	flags.StringVar(&f.own.Header, "signature-header", "", "hmac: the header that has the signature")
	flags.StringVar(&f.own.Form, "form", "sha256={hex}", "hmac: how the header is written, with {hex} or {base64}, and {timestamp} if it is there")
	flags.StringVar(&f.own.Signed, "signed", "{body}", "hmac: what is signed, of {id}, {timestamp}, {url} and {body}")
	flags.StringVar(&f.own.TimeHeader, "time-header", "", "hmac: the header that has {timestamp}")
	flags.StringVar(&f.own.IDHeader, "id-header", "", "hmac: the header that has {id}")
}

func (sh *shell) printResult(r sigcheck.Result) error {
	if sh.json {
		return sh.printJSON(r)
	}
	if r.Verified {
		fmt.Fprint(sh.out, "It verifies.")
		if r.ID != "" {
			fmt.Fprintf(sh.out, " The signed id is %s.", printable(r.ID))
		}
		if r.SignedAt != nil {
			fmt.Fprintf(sh.out, " It was signed at %s.", local(*r.SignedAt))
		}
		fmt.Fprintln(sh.out)
		return nil
	}
	fmt.Fprintf(sh.out, "It does not verify (%s): %s.\n", r.Reason, printable(r.Detail))
	for _, hint := range r.Hints {
		fmt.Fprintf(sh.out, "- %s\n", printable(hint))
	}
	return nil
}

// read makes the request of the flags.
func (f *received) read(stdin io.Reader) (sigcheck.Request, error) {
	r := sigcheck.Request{At: time.Now()}
	var err error
	if f.provider == "hmac" {
		r.Provider = receive.Provider{Name: "hmac", Scheme: f.own}
		if f.own.Header == "" {
			return r, usagef("--provider hmac needs --signature-header")
		}
	} else if r.Provider, err = providerNamed(f.provider); err != nil {
		return r, err
	}
	if s, ok := r.Provider.Scheme.(*signature.PayPalRSA); ok {
		guard, err := egress.New(egress.Config{}) // the request names the certificate's address
		if err != nil {
			return r, err
		}
		s.Client = guard.Client()
	}
	if f.at != "" {
		if r.At, err = time.Parse(time.RFC3339, f.at); err != nil {
			return r, usagef("--at must be a time as RFC 3339 writes it, like 2026-11-30T12:00:00Z")
		}
	}
	if r.Secret, err = f.readSecret(); err != nil {
		return r, err
	}
	r.Method, r.URL, r.Header = http.MethodPost, f.url, http.Header{}
	if f.request != "" {
		if err := f.readRequest(stdin, &r); err != nil {
			return r, err
		}
	}
	for _, line := range f.header {
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" {
			return r, usagef("--header %q is not \"Name: value\"", line)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if f.body != "" {
		r.Body, err = readAll(stdin, f.body)
	}
	return r, err
}

func (f *received) readSecret() (string, error) {
	if f.secretFile == "" {
		if f.secret == "" {
			return "", usagef("--secret-file or --secret is needed")
		}
		return f.secret, nil
	}
	text, err := os.ReadFile(f.secretFile)
	if err != nil {
		return "", usagef("--secret-file: %s", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// readRequest takes a request as a proxy or a terminal recorded it. What comes after the empty line
// is the body, whatever Content-Length says.
func (f *received) readRequest(stdin io.Reader, r *sigcheck.Request) error {
	raw, err := readAll(stdin, f.request)
	if err != nil {
		return err
	}
	head, body, found := bytes.Cut(raw, []byte("\r\n\r\n"))
	if h, b, lf := bytes.Cut(raw, []byte("\n\n")); lf && (!found || len(h) < len(head)) {
		head, body = h, b
	}
	lines := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(bytes.Clone(head), "\r\n\r\n"...))))
	first, err := lines.ReadLine()
	if err != nil {
		return usagef("--request: %s is empty", f.request)
	}
	method, _, isRequest := strings.Cut(first, " /")
	if !isRequest {
		return usagef("--request: the first line must be like POST /path HTTP/1.1")
	}
	header, err := lines.ReadMIMEHeader()
	if err != nil {
		return usagef("--request: the headers cannot be read: %s", err)
	}
	r.Method, r.Header, r.Body = method, http.Header(header), body
	return nil
}

func readAll(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	body, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("%s", err)
	}
	return body, nil
}
