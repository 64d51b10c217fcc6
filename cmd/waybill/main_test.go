package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	program    string              // the binary under test, built once
	buildFlags = []string{"build"} // see race_test.go
	settled    []string            // of the environment, whatever the test says
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "waybill-cli")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "waybill")
		if out, err := exec.Command("go", append(buildFlags, "-o", program, ".")...).CombinedOutput(); err != nil {
			log.Fatalf("build: %v\n%s", err, out)
		}
		return m.Run()
	}())
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

// patience is how long a test waits for what should take a moment.
const patience = 30 * time.Second

// waybill runs a command to its end, in dir, with env as its whole environment.
func waybill(t *testing.T, dir string, env []string, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, slices.Concat(settled, env), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
		if exit.ExitCode() < 0 {
			t.Fatalf("waybill %s: %v\n%s", strings.Join(args, " "), exit, errs.String())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok runs a command that must succeed and returns what it printed.
func ok(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	r := waybill(t, dir, env, "", args...)
	if r.code != 0 {
		t.Fatalf("waybill %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// process is a command that runs until it is stopped.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of its standard output
	done  chan error
	errs  *lockedBuffer
}

// start starts a long-running command.
func start(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, slices.Concat(settled, env)
	p := &process{t: t, cmd: cmd, lines: make(chan string, 10_000), done: make(chan error, 1), errs: &lockedBuffer{}}
	cmd.Stderr = p.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 4<<20)
		for scan.Scan() {
			p.lines <- scan.Text()
		}
		close(p.lines)
		p.done <- cmd.Wait()
	}()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("waybill %s:\n%s", strings.Join(args, " "), p.errs.String())
		}
	})
	return p
}

// line waits for a line of standard output that contains text.
func (p *process) line(text string) string {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				p.t.Fatalf("the process ended before it printed %q\n%s", text, p.errs.String())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			p.t.Fatalf("no line with %q came\n%s", text, p.errs.String())
		}
	}
}

// stop sends a signal and returns the exit code.
func (p *process) stop(signal os.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.After(patience); ; {
		select {
		case <-p.lines: // keep the pipe flowing
		case err := <-p.done:
			p.done <- err
			return p.cmd.ProcessState.ExitCode()
		case <-deadline:
			p.t.Fatalf("still running after %v\n%s", signal, p.errs.String())
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const testKey = "the-key-of-the-command-line-tests"

// server is a `waybill serve` on a SQLite file.
type server struct {
	*process
	dir string
	env []string // for client commands and for verify
}

// serve starts a server on a fresh SQLite file that may deliver to loopback.
func serve(t *testing.T, settings ...string) *server {
	t.Helper()
	dir := t.TempDir()
	env := append([]string{
		"WAYBILL_API_KEY=" + testKey,
		"WAYBILL_LISTEN=127.0.0.1:0",
		"WAYBILL_EGRESS_ALLOW=127.0.0.0/8",
	}, settings...)
	p := start(t, dir, env, "serve")
	address := strings.TrimPrefix(p.line("listening on "), "listening on ")
	return &server{p, dir, append(env, "WAYBILL_URL="+address)}
}

// wait calls f until it returns true.
func wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		if f() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// inProcess runs a command line without a process of its own, for what needs none.
func inProcess(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, streams{strings.NewReader(""), &out, &errs}, nil)
	return result{code, out.String(), errs.String()}
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nout: %s\nerr: %s", r.code, r.out, r.err)
}

// with returns env with one variable set anew.
func with(env []string, name, value string) []string {
	changed := slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	return append(changed, name+"="+value)
}

// shellOutput runs a line as a person's shell would.
func shellOutput(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

var interrupt = os.Signal(syscall.SIGINT)
