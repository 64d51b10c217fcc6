package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/version"
)

// defaultURL is where client commands look for a server.
const defaultURL = "http://127.0.0.1:8420"

// shell is what all commands share.
type shell struct {
	streams
	environ []string
	json    bool   // --json
	url     string // --url
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, std streams, environ []string) int {
	sh := &shell{streams: std, environ: environ}
	// JSON would silently turn what is no text into something else.
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			err := usagef("an argument is not UTF-8 text: %q", arg)
			fmt.Fprintf(std.err, "waybill: %s\n", err)
			return exitCode(err)
		}
	}
	root := sh.root()
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	// Whatever cobra refuses before a command starts is about the command line.
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	if err != nil && !started {
		err = &usageError{err.Error()}
	}
	if err != nil && !errors.Is(err, errCheckFailed) {
		fmt.Fprintf(std.err, "waybill: %s\n", oneLine(err))
		if _, usage := errors.AsType[*usageError](err); usage {
			fmt.Fprintln(std.err, "waybill: see --help")
		}
	}
	return exitCode(err)
}

// oneLine keeps what a person reads to one line, and says nothing twice: an error of the database
// has a line for every way in which it was tried to be reached.
func oneLine(err error) string {
	var said []string
	for line := range strings.Lines(err.Error()) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	return strings.ReplaceAll(strings.Join(said, "; "), ":; ", ": ")
}

func (sh *shell) root() *cobra.Command {
	root := group("waybill", "Webhooks that arrive",
		sh.serve(), sh.dev(), sh.migrate(), sh.sql(), sh.verify(), sh.bench(),
		sh.publish(), sh.listen(), sh.tail(), sh.find(), sh.replay(), sh.why(), sh.pause(), sh.resume(),
		sh.tenants(), sh.endpoints(), sh.events(), sh.deliveries(),
		sh.prune(), sh.export(), sh.importEndpoints(), sh.configuration(), sh.doctor(), sh.healthcheck(), sh.man(), sh.openapi(),
		sh.keys(), sh.portal(), sh.adopt(), sh.reseal(), sh.inboundSources(),
		sh.replays(), sh.cancellations(), sh.erasures(),
		sh.version())
	root.Long = `Waybill delivers webhooks that arrive.

Client commands talk to the server at --url or WAYBILL_URL (` + defaultURL + `) with the key in
WAYBILL_API_KEY; --json prints the server's answer as it came.

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 not found, 4 refused, 5 unreachable.`
	root.Version = version.String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().BoolVar(&sh.json, "json", false, "print JSON")
	root.AddCommand(sh.quarantine(), sh.simulate(), sh.sign(), sh.verifySignature())
	for _, hidden := range sh.benchProcesses() {
		hidden.Hidden = true
		root.AddCommand(hidden)
	}
	return root
}

// group is a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q has no command %q", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.ErrOrStderr(), cmd.UsageString())
			return usagef("%q needs a command", cmd.CommandPath())
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

func (sh *shell) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if sh.json {
				return sh.printJSON(map[string]string{"version": version.String(), "go": runtime.Version()})
			}
			fmt.Fprintln(sh.out, version.String())
			return nil
		},
	}
}

// env returns a variable of the environment.
func (sh *shell) env(name string) string {
	for _, entry := range sh.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// clientFlags adds what every client command takes.
func (sh *shell) clientFlags(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVar(&sh.url, "url", "", "the server (default: WAYBILL_URL, else "+defaultURL+")")
	return cmd
}

// client makes the client for the configured server.
func (sh *shell) client() (*client.Client, error) {
	address := sh.url
	if address == "" {
		address = sh.env("WAYBILL_URL")
	}
	if address == "" {
		address = defaultURL
	}
	key := sh.env("WAYBILL_API_KEY")
	if path := sh.env("WAYBILL_API_KEY_FILE"); key == "" && path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("WAYBILL_API_KEY_FILE: %s", err)
		}
		key = strings.TrimSpace(string(content))
	}
	c, err := client.New(client.Config{URL: address, Key: key})
	if err != nil {
		return nil, usagef("%s", err)
	}
	if key == "" {
		return nil, &config.Refusal{Reason: "WAYBILL_API_KEY is not set; the server answers nobody without a key"}
	}
	return c, nil
}
