package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Roles are the hidden commands this binary runs for itself.
const (
	RoleSink      = "bench-sink"
	RolePublisher = "bench-publisher"
	RoleRaw       = "bench-raw"
)

// RunRole runs one of the processes of a benchmark.
func RunRole(ctx context.Context, role string) error {
	switch role {
	case RoleSink:
		return runSink(ctx)
	case RolePublisher:
		return runPublisher(ctx)
	case RoleRaw:
		return runRaw(ctx)
	}
	return fmt.Errorf("there is no role %q", role)
}

// process is a child made from this binary.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// startProcess starts this binary with args and env added to a bare environment: nothing the
// caller has set may change what is measured.
func startProcess(ctx context.Context, env []string, stdin io.Reader, stdout io.Writer, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, args...), stderr: &bytes.Buffer{}}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, p.stderr
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	return p, p.cmd.Start()
}

func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait()
}

func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args[1:], " "), err, lastLines(p.stderr.String(), 5))
	}
	return nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// runChild runs a role to its end: in is its JSON input, out its JSON output.
func runChild(ctx context.Context, role string, in, out any) error {
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	p, err := startProcess(ctx, nil, bytes.NewReader(input), &output, role)
	if err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		return err
	}
	return json.Unmarshal(output.Bytes(), out)
}

// sinkProcess is a running sink.
type sinkProcess struct {
	*process
	url string
}

func startSink(ctx context.Context) (*sinkProcess, error) {
	r, w := io.Pipe()
	p, err := startProcess(ctx, nil, nil, w, RoleSink)
	if err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return nil, err
	}
	go io.Copy(io.Discard, r)
	return &sinkProcess{p, strings.TrimSpace(url)}, nil
}

func (s *sinkProcess) reset(ctx context.Context) error {
	return callJSON(ctx, newClient(1), "POST", s.url+"/reset", "", nil, nil)
}

func (s *sinkProcess) stats(ctx context.Context, group string) (sinkStats, error) {
	var stats sinkStats
	return stats, getJSON(ctx, newClient(1), s.url+"/stats/"+group, "", &stats)
}

// peakRSS returns the largest resident set of a process so far, in MiB; 0 where the system does
// not say.
func peakRSS(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib / 1024
		}
	}
	return 0
}
