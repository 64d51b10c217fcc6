// Command waybill is the server, the tools around it, and a client for its API.
//
// See `waybill --help`. Exit codes: 0 ok, 1 a check failed, 2 usage, 3 not found, 4 refused,
// 5 unreachable.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal asks for a graceful stop; after it the default is back, so that a second
	// one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}, os.Environ()))
}

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}
