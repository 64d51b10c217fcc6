package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON writes a value of our own as JSON.
func (sh *shell) printJSON(v any) error {
	enc := json.NewEncoder(sh.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printRaw writes the server's answer as it came.
func (sh *shell) printRaw(body []byte) error {
	_, err := fmt.Fprintf(sh.out, "%s\n", strings.TrimRight(string(body), "\n"))
	return err
}

// table writes rows in columns.
func (sh *shell) table(header []string, rows [][]string) error {
	w := tabwriter.NewWriter(sh.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = cell(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// cell keeps a value to its column and off the terminal's controls; "-" stands for nothing.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable keeps what others wrote off the terminal's controls.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// more tells how to go on with a list. It goes to standard error, so that the table can be piped.
func (sh *shell) more(cursor *string) {
	if cursor != nil {
		fmt.Fprintf(sh.err, "there is more: --cursor %s\n", *cursor)
	}
}

// local writes a time for people, in their zone.
func local(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
