package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
)

// maxImportLine is the longest line of an import; the API takes no more.
const maxImportLine = 256 << 10

// importing is how an import goes about it.
type importing struct {
	tenant        string // of lines that name none
	createTenants bool
	dry, check    bool
	parallel      int
}

// imported is what became of one line.
type imported struct {
	Line   int    `json:"line"`
	Tenant string `json:"tenant,omitempty"`
	UID    string `json:"uid,omitempty"`
	// Result is created, updated, would_create, would_update or refused.
	Result     string          `json:"result"`
	ID         string          `json:"id,omitempty"`
	Errors     []client.Item   `json:"errors,omitempty"`
	Connection json.RawMessage `json:"connection,omitempty"`

	unreachable error
}

func (sh *shell) importEndpoints() *cobra.Command {
	var how importing
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make or change many endpoints, one JSON object a line",
		Long: `Each line is an endpoint as the API takes it, with its tenant and uid:

  {"tenant":"acme","uid":"crm","url":"https://hooks.example.com/in",
   "secrets":[{"scheme":"stripe","value":"whsec_…"}],"signing":{"schemes":["standard","stripe"]}}

An endpoint of the same uid is changed, so an import can be run again. A user name and password in
a URL become the secret header Authorization. A line that is refused is told with its number, and
does not keep the others from being imported.

--dry-run stores nothing. --check also looks each host up, connects and makes the TLS handshake,
from where the server is, and sends nothing. FILE may be - for standard input.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := io.Reader(os.Stdin)
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			if how.parallel < 1 || how.parallel > 64 {
				return usagef("--parallel is from 1 to 64")
			}
			c, err := sh.client()
			if err != nil {
				return err
			}
			return sh.importAll(cmd.Context(), c, in, &how)
		},
	}
	cmd.Flags().StringVar(&how.tenant, "tenant", "", "of lines that name none")
	cmd.Flags().BoolVar(&how.createTenants, "create-tenants", false, "make the tenants that do not exist")
	cmd.Flags().BoolVar(&how.dry, "dry-run", false, "judge every line and store nothing")
	cmd.Flags().BoolVar(&how.check, "check", false, "report what every address shows, without sending")
	cmd.Flags().IntVar(&how.parallel, "parallel", 8, "requests at once")
	return sh.clientFlags(cmd)
}

// importAll imports the lines, several at once, and tells of them in their order.
func (sh *shell) importAll(ctx context.Context, c *client.Client, in io.Reader, how *importing) error {
	type job struct {
		line int
		text []byte
		done chan imported
	}
	jobs := make(chan *job)
	order := make(chan *job, how.parallel)
	var workers sync.WaitGroup
	for range how.parallel {
		workers.Go(func() {
			for j := range jobs {
				j.done <- how.line(ctx, c, j.line, j.text)
			}
		})
	}
	var readErr error
	go func() {
		defer close(order)
		defer close(jobs)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxImportLine)
		n := 0
		for lines.Scan() {
			n++
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			j := &job{n, bytes.Clone(text), make(chan imported, 1)}
			order <- j
			jobs <- j
		}
		if readErr = lines.Err(); errors.Is(readErr, bufio.ErrTooLong) {
			readErr = fmt.Errorf("line %d is longer than %d bytes", n+1, maxImportLine)
		}
	}()
	count := map[string]int{}
	var away error
	for j := range order {
		result := <-j.done
		count[result.Result]++
		if result.unreachable != nil {
			away = result.unreachable
		}
		if err := sh.tellImported(&result); err != nil {
			return err
		}
	}
	workers.Wait()
	switch {
	case readErr != nil:
		return readErr
	case away != nil:
		return away
	}
	if !sh.json {
		fmt.Fprintf(sh.out, "created %d, updated %d, would create %d, would update %d, refused %d, cannot be reached %d\n",
			count["created"], count["updated"], count["would_create"], count["would_update"], count["refused"], count["unreachable"])
	}
	if count["refused"]+count["unreachable"] > 0 {
		return errCheckFailed
	}
	return nil
}

// tellImported prints one result: all of it as JSON, or what a person must know.
func (sh *shell) tellImported(r *imported) error {
	if sh.json {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sh.out, "%s\n", text)
		return err
	}
	for _, item := range r.Errors {
		where := item.Path
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(sh.out, "line %d (%s): %s%s\n", r.Line, cell(r.UID), printable(where), printable(item.Detail))
	}
	return nil
}

// line imports one line.
func (how *importing) line(ctx context.Context, c *client.Client, n int, text []byte) imported {
	r := imported{Line: n, Tenant: how.tenant, Result: "refused"}
	refuse := func(path, detail string) imported {
		r.Errors = append(r.Errors, client.Item{Path: path, Detail: detail})
		return r
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return refuse("", "is not a JSON object")
	}
	if raw, given := members["uid"]; given && json.Unmarshal(raw, &r.UID) != nil {
		return refuse("uid", "want a string")
	}
	if raw, given := members["tenant"]; given && json.Unmarshal(raw, &r.Tenant) != nil {
		return refuse("tenant", "want a string")
	}
	delete(members, "tenant")
	switch {
	case r.Tenant == "":
		return refuse("tenant", "is required, here or with --tenant")
	case r.UID == "":
		return refuse("uid", "is required, so that the import can be run again")
	}
	if detail := liftUserinfo(members); detail != "" {
		return refuse("url", detail)
	}
	body, err := json.Marshal(members)
	if err != nil {
		return refuse("", "cannot be sent")
	}
	if how.dry || how.check {
		if done := how.judge(ctx, c, &r, body); done || how.dry {
			return r
		}
	}
	how.put(ctx, c, &r, body, how.createTenants)
	return r
}

// judge asks the server what would become of the line. It reports whether that is the end of it.
func (how *importing) judge(ctx context.Context, c *client.Client, r *imported, body []byte) (done bool) {
	q := url.Values{}
	if how.check {
		q.Set("connect", "true")
	}
	checked, _, err := client.Call[struct {
		Would      string
		Connection json.RawMessage
	}](ctx, c, client.Request{Method: http.MethodPost, Path: client.Path("v1", "tenants", r.Tenant, "endpoints", "check"), Query: q, Body: body})
	if err != nil {
		if answer, ok := errors.AsType[*client.Error](err); ok && answer.Code == "unknown_tenant" && how.createTenants {
			if r.Result = "would_create"; how.dry {
				return true
			}
			return false
		}
		r.fail(err)
		return true
	}
	r.Result, r.Connection = "would_"+checked.Would, checked.Connection
	var connection struct {
		OK      bool
		Message string
	}
	if how.check && json.Unmarshal(checked.Connection, &connection) == nil && !connection.OK {
		r.Result = "unreachable"
		r.Errors = append(r.Errors, client.Item{Path: "url", Code: "unreachable", Detail: connection.Message})
		return how.dry // it is imported all the same: a server may be down for an hour
	}
	return false
}

func (how *importing) put(ctx context.Context, c *client.Client, r *imported, body []byte, createTenant bool) {
	e, answer, err := client.Call[client.Endpoint](ctx, c, client.Request{Method: http.MethodPut, Path: client.Path("v1", "tenants", r.Tenant, "endpoints", r.UID), Body: body})
	if refusal, ok := errors.AsType[*client.Error](err); ok && refusal.Code == "unknown_tenant" && createTenant {
		if _, err = c.Do(ctx, client.Request{Method: http.MethodPut, Path: client.Path("v1", "tenants", r.Tenant), Body: []byte("{}")}); err == nil {
			how.put(ctx, c, r, body, false)
			return
		}
	}
	if err != nil {
		r.fail(err)
		return
	}
	r.ID, r.Result = e.ID, "updated"
	if bytes.Contains(answer, []byte(`"secret":`)) { // only an endpoint that is new shows one
		r.Result = "created"
	}
}

// fail notes why a line was not taken.
func (r *imported) fail(err error) {
	r.Result = "refused"
	if answer, ok := errors.AsType[*client.Error](err); ok {
		if r.Errors = answer.Items; len(r.Errors) == 0 {
			r.Errors = []client.Item{{Code: answer.Code, Detail: answer.Detail}}
		}
		return
	}
	r.unreachable = err
	r.Errors = []client.Item{{Detail: err.Error()}}
}

// liftUserinfo makes a user name and password in the URL the secret header Authorization. It
// returns what is wrong, "" where nothing is.
func liftUserinfo(members map[string]json.RawMessage) string {
	var raw string
	if json.Unmarshal(members["url"], &raw) != nil {
		return "" // the server says so
	}
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return ""
	}
	headers := map[string]string{}
	if given, ok := members["secret_headers"]; ok && json.Unmarshal(given, &headers) != nil {
		return "" // likewise
	}
	for name := range headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return "holds a user name although secret_headers has Authorization"
		}
	}
	password, _ := u.User.Password()
	headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	members["url"], members["secret_headers"] = asJSON(withoutUserinfo(raw)), asJSON(headers)
	return ""
}

// withoutUserinfo cuts it out of a URL that has one; the rest stays byte for byte.
func withoutUserinfo(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "//")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return scheme + "//" + rest[strings.LastIndexByte(rest[:end], '@')+1:]
}

// asJSON writes text that cannot fail to be JSON.
func asJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%T as JSON: %v", v, err))
	}
	return text
}
