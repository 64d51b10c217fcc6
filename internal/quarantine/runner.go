package quarantine

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// How a child may end without an answer. Any other error says that it never came to its order.
var (
	ErrDied = errors.New("the process died of it")
	ErrHung = errors.New("the process hung and was ended")
)

// PanicError is a panic that the child caught.
type PanicError struct{ Text string }

func (e *PanicError) Error() string { return "panic in a process of its own" }

// Config says how a Runner works. Command and Clock are required.
type Config struct {
	// Command is the program and its arguments that end up in Serve.
	Command  []string
	Settings Settings
	Clock    *outbox.Clock
	// Margin is how long after an attempt's own deadline its process may take to answer;
	// default 5 s.
	Margin time.Duration
}

// Runner runs orders, each in a process of its own.
type Runner struct{ cfg Config }

// New makes a runner.
func New(cfg Config) *Runner {
	if cfg.Margin == 0 {
		cfg.Margin = 5 * time.Second
	}
	return &Runner{cfg}
}

const (
	// startWithin bounds the start of a child, on a machine that is short of everything.
	startWithin = 30 * time.Second
	// routeWithin bounds the routing of one event; without a network it takes no time.
	routeWithin = 10 * time.Second
)

// Attempt makes one attempt. Where the error is nil the outcome is what an attempt in this
// process would have been.
func (r *Runner) Attempt(ctx context.Context, e attempt.Endpoint, q attempt.Request) (attempt.Outcome, error) {
	o := r.cfg.Settings.order(r.cfg.Clock.Now())
	o.Attempt = &attemptOrder{e, q.Event, q.EventType, q.N, q.Sequence, q.Trigger, q.Payload, q.Metadata}
	limit := e.Timeout
	if limit <= 0 {
		limit = outbox.DefaultTimeout
	}
	a, err := r.run(ctx, o, min(limit, outbox.MaxTimeout)+r.cfg.Margin)
	return a.Outcome, err
}

// Route does what routing does with a row, for endpoints of its tenant. Nil: it was survived.
func (r *Runner) Route(ctx context.Context, row outbox.OutboxRow, endpoints route.Subscribers) error {
	o := r.cfg.Settings.order(r.cfg.Clock.Now())
	o.Route = &routeOrder{Row: row}
	for _, e := range endpoints {
		o.Route.Endpoints = append(o.Route.Endpoints, outbox.Endpoint{ID: e.ID, State: e.State, EventTypes: e.EventTypes, Filter: e.Filter})
	}
	_, err := r.run(ctx, o, routeWithin)
	return err
}

// run gives one order to one child and returns its answer.
func (r *Runner) run(ctx context.Context, o order, limit time.Duration) (answer, error) {
	var message bytes.Buffer
	if err := gob.NewEncoder(&message).Encode(o); err != nil {
		return answer{}, fmt.Errorf("quarantine: %w", err)
	}
	cmd := exec.CommandContext(ctx, r.cfg.Command[0], r.cfg.Command[1:]...)
	cmd.Env = environment()
	cmd.WaitDelay = time.Second
	var last fatal
	cmd.Stderr = &last
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return answer{}, fmt.Errorf("quarantine: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return answer{}, fmt.Errorf("quarantine: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return answer{}, fmt.Errorf("quarantine: %w", err)
	}
	var late atomic.Bool
	timer := time.AfterFunc(startWithin, func() {
		late.Store(true)
		_ = cmd.Process.Kill() // it may have ended just now
	})
	defer timer.Stop()
	end := func() error {
		_ = stdin.Close()
		return cmd.Wait()
	}

	answers := gob.NewDecoder(stdout)
	var h hello
	if err := answers.Decode(&h); err != nil || !h.Ready {
		_ = cmd.Process.Kill()
		return answer{}, fmt.Errorf("quarantine: the process did not come up: %w", errors.Join(err, end()))
	}
	timer.Reset(limit)
	// The input stays open until the answer is there: its end tells the child that we are gone.
	_, _ = stdin.Write(message.Bytes()) // a child that died already gives no answer
	var a answer
	err = answers.Decode(&a)
	ended := end()
	switch {
	case err == nil && a.Panic != "":
		return answer{}, &PanicError{a.Panic}
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return answer{}, ctx.Err() // ended by us
	case late.Load():
		return answer{}, ErrHung
	}
	if ended == nil {
		ended = errors.New("it exited without an answer")
	}
	return answer{}, fmt.Errorf("%w: %w%s", ErrDied, ended, last.cause())
}

// passed are the variables a child sees. The server's own hold passwords and keys, and what it
// needs of them comes with the order.
var passed = []string{"PATH", "HOME", "TZ", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR", "LOCALDOMAIN", "RES_OPTIONS", "GODEBUG", "GOMEMLIMIT", "GOMAXPROCS"}

func environment() []string {
	env := []string{}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains(passed, name) {
			env = append(env, entry)
		}
	}
	return env
}

// fatal keeps, of what a dying process writes, the runtime's own reason. The rest may hold
// anything that was in its memory.
type fatal struct{ begin []byte }

func (f *fatal) Write(p []byte) (int, error) {
	if room := 4096 - len(f.begin); room > 0 {
		f.begin = append(f.begin, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (f *fatal) cause() string {
	for line := range strings.Lines(string(f.begin)) {
		if strings.HasPrefix(line, "fatal error: ") {
			return ": " + strings.TrimSpace(line)
		}
	}
	return ""
}
