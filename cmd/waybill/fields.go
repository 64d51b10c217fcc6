package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/client"
)

// field is one member of a request body that has a flag.
type field struct {
	flag, member, usage string
	kind                fieldKind
}

type fieldKind int

const (
	textField fieldKind = iota
	intField
	floatField
	listField // repeatable, or separated by commas
	mapField  // key=value, repeatable
	rateField // COUNT/SECONDS, or none
)

// fieldFlags adds a flag for every field, and --body for everything the API takes.
func fieldFlags(cmd *cobra.Command, fields []field) {
	flags := cmd.Flags()
	for _, f := range fields {
		switch f.kind {
		case textField, rateField:
			flags.String(f.flag, "", f.usage)
		case intField:
			flags.Int(f.flag, 0, f.usage)
		case floatField:
			flags.Float64(f.flag, 0, f.usage)
		case listField:
			flags.StringSlice(f.flag, nil, f.usage)
		case mapField:
			flags.StringToString(f.flag, nil, f.usage)
		}
	}
	flags.String("body", "", "the whole request as JSON, @FILE or - (standard input), instead of the other flags")
}

// body builds the request body from the flags that were given.
func (sh *shell) body(cmd *cobra.Command, fields []field, more map[string]any) ([]byte, error) {
	flags := cmd.Flags()
	if flags.Changed("body") {
		for _, f := range fields {
			if flags.Changed(f.flag) {
				return nil, usagef("--body and --%s exclude each other", f.flag)
			}
		}
		text, err := flags.GetString("body")
		if err != nil {
			return nil, err
		}
		return sh.argument(text)
	}
	members := map[string]any{}
	maps.Copy(members, more)
	for _, f := range fields {
		if !flags.Changed(f.flag) {
			continue
		}
		value, err := f.value(flags)
		if err != nil {
			return nil, err
		}
		members[f.member] = value
	}
	return json.Marshal(members)
}

func (f field) value(flags *pflag.FlagSet) (any, error) {
	switch f.kind {
	case intField:
		return flags.GetInt(f.flag)
	case floatField:
		return flags.GetFloat64(f.flag)
	case listField:
		return flags.GetStringSlice(f.flag)
	case mapField:
		return flags.GetStringToString(f.flag)
	case rateField:
		text, err := flags.GetString(f.flag)
		if err != nil || text == "none" {
			return nil, err
		}
		count, per, _ := strings.Cut(text, "/")
		n, countErr := strconv.Atoi(count)
		seconds, perErr := strconv.ParseFloat(per, 64)
		if countErr != nil || perErr != nil {
			return nil, usagef("--%s: %q is not COUNT/SECONDS, such as 50/1, or none", f.flag, text)
		}
		return map[string]any{"count": n, "per_seconds": seconds}, nil
	default:
		return flags.GetString(f.flag)
	}
}

// argument reads a value that may be given as @FILE, or as - or @- for standard input.
func (sh *shell) argument(text string) ([]byte, error) {
	path, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-", path == "-" && isFile:
		return io.ReadAll(sh.in)
	case !isFile:
		return []byte(text), nil
	default:
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("%s", err)
		}
		return content, nil
	}
}

// listFlags adds the filters of a list, named as in the API with - for _, and paging.
func listFlags(cmd *cobra.Command, filters ...string) {
	flags := cmd.Flags()
	for _, filter := range filters {
		flags.StringSlice(strings.ReplaceAll(filter, "_", "-"), nil, "only with this "+filter)
	}
	flags.Int("limit", 0, "rows of a page, 1 to 250 (default 50)")
	flags.String("cursor", "", "where the last page ended")
}

// query reads the flags of listFlags.
func query(cmd *cobra.Command) (url.Values, error) {
	values := url.Values{}
	var failed error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		name := strings.ReplaceAll(f.Name, "-", "_")
		switch {
		case f.Name == "limit" || f.Name == "cursor":
			values.Set(name, f.Value.String())
		case f.Value.Type() == "stringSlice":
			items, err := cmd.Flags().GetStringSlice(f.Name)
			if err != nil {
				failed = err
			}
			values[name] = items
		}
	})
	return values, failed
}

// scope is the path of a tenant's own things, or of the operator's look at everybody's.
func scope(tenant string, parts ...string) string {
	if tenant == "" {
		return client.Path(append([]string{"v1"}, parts...)...)
	}
	return client.Path(append([]string{"v1", "tenants", tenant}, parts...)...)
}

// needTenant refuses a command that cannot do without.
func needTenant(tenant string) error {
	if tenant == "" {
		return usagef("whose? give --tenant")
	}
	return nil
}

// list asks for a page and shows it.
func list[T any](cmd *cobra.Command, sh *shell, path string, header []string, row func(T) []string) error {
	c, err := sh.client()
	if err != nil {
		return err
	}
	values, err := query(cmd)
	if err != nil {
		return err
	}
	page, raw, err := client.Call[client.Page[T]](cmd.Context(), c, client.Request{Path: path, Query: values})
	if err != nil {
		return err
	}
	if sh.json {
		return sh.printRaw(raw)
	}
	rows := make([][]string, len(page.Data))
	for i, item := range page.Data {
		rows[i] = row(item)
	}
	if err := sh.table(header, rows); err != nil {
		return err
	}
	sh.more(page.NextCursor)
	return nil
}

// send makes one request and prints its answer: as it came, since one object is easier read
// whole than in columns.
func (sh *shell) send(cmd *cobra.Command, r client.Request) error {
	c, err := sh.client()
	if err != nil {
		return err
	}
	body, err := c.Do(cmd.Context(), r)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return nil
	}
	if sh.json || !json.Valid(body) {
		return sh.printRaw(body)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		return err
	}
	return sh.printRaw(pretty.Bytes())
}
