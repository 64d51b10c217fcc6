package program

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/tests/loopback"
)

// Instance is a place where waybill serve runs: a database, an address and keys. What is started
// there may be killed and started again; its clients see no more of it than that.
type Instance struct {
	Database string
	Listen   string // host:port that is nobody else's, so it is free whenever the program starts
	APIKey   string
	Env      []string // beyond what every instance has
	Log      Log      // what all that ran here wrote

	t       testing.TB
	binary  string
	sealing string

	mu       sync.Mutex
	launched []*Process
}

// NewInstance makes a place with keys of its own. Loopback receivers are allowed there. What still
// runs at the end of the test is killed; where the test has failed, what it wrote is shown.
func NewInstance(t testing.TB, binary, database string) *Instance {
	t.Helper()
	sealing := make([]byte, 32)
	rand.Read(sealing)
	i := &Instance{t: t, binary: binary, APIKey: rand.Text(), sealing: base64.StdEncoding.EncodeToString(sealing)}
	return i.Beside(database)
}

// Use has another build run here, and in places made beside this one, from now on.
func (i *Instance) Use(binary string) { i.binary = binary }

// Beside makes another place with the same keys: a second node, or the same database seen in
// another way.
func (i *Instance) Beside(database string) *Instance {
	i.t.Helper()
	other := &Instance{Database: database, Listen: ownAddress(i.t), APIKey: i.APIKey, t: i.t, binary: i.binary, sealing: i.sealing}
	i.t.Cleanup(func() {
		other.mu.Lock()
		defer other.mu.Unlock()
		for _, p := range other.launched {
			p.Kill()
		}
		if i.t.Failed() {
			i.t.Logf("waybill serve at %s wrote, at the end:\n%s", other.Listen, other.Log.Tail(8000))
		}
	})
	return other
}

// ownAddress returns where the program listens here.
func ownAddress(t testing.TB) string {
	t.Helper()
	host, port, err := loopback.Address()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// Command prepares the program, to be run with what it needs to work here.
func (i *Instance) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(i.binary, args...)
	cmd.Dir = i.t.TempDir()
	cmd.WaitDelay = 2 * time.Second // a child of a killed one may keep the pipes open a little
	cmd.Env = append(os.Environ(),
		"WAYBILL_DATABASE_URL="+i.Database,
		"WAYBILL_LISTEN="+i.Listen,
		"WAYBILL_API_KEY="+i.APIKey,
		"WAYBILL_ENCRYPTION_KEY="+i.sealing,
		"WAYBILL_EGRESS_ALLOW=127.0.0.0/8",
		"WAYBILL_LOG=text",
	)
	cmd.Env = append(cmd.Env, i.Env...)
	return cmd
}

// Launch starts waybill serve and does not wait for anything.
func (i *Instance) Launch() (*Process, error) {
	p := &Process{at: i, cmd: i.Command("serve"), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &i.Log, &i.Log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	i.mu.Lock()
	i.launched = append(i.launched, p)
	i.mu.Unlock()
	return p, nil
}

// Start starts waybill serve and returns once it listens.
func (i *Instance) Start() *Process {
	i.t.Helper()
	p, err := i.Launch()
	if err != nil {
		i.t.Fatal(err)
	}
	p.AwaitListening()
	return p
}

// client keeps enough connections for the load of a test.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// Send sends a request and returns the status and the body; status 0 where there was no whole
// answer, for that told the caller nothing.
func (i *Instance) Send(ctx context.Context, method, path string, body []byte) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+i.Listen+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+i.APIKey)
	req.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil
	}
	return answer.StatusCode, text
}

// Totals are the sums that waybill verify prints.
type Totals struct {
	Events, Routed, Waiting, Planned, Delivered, Pending, Dead, Cancelled int
}

// Verify runs waybill verify --deep, which must prove the books.
func (i *Instance) Verify() Totals {
	i.t.Helper()
	out, err := i.Command("verify", "--deep", "--json").CombinedOutput()
	if err != nil {
		i.t.Fatalf("waybill verify: %v\n%s", err, out)
	}
	var report struct {
		Balanced bool   `json:"balanced"`
		Totals   Totals `json:"totals"`
	}
	if err := json.Unmarshal(out, &report); err != nil || !report.Balanced {
		i.t.Fatalf("waybill verify: %v\n%s", err, out)
	}
	return report.Totals
}

// Process is a waybill serve that was started.
type Process struct {
	at    *Instance
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended
}

// AwaitListening returns once the program takes connections.
func (p *Process) AwaitListening() {
	t := p.at.t
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", p.at.Listen, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("waybill serve ended before it listened: %v", p.err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("waybill serve does not listen after 20 s")
		}
	}
}

// Ended is closed once the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends the program as the out-of-memory killer would, on whatever line it is, and returns
// once it is gone. A frozen one is thawed for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Signal sends a signal to the program, which must be running.
func (p *Process) Signal(s os.Signal) {
	p.at.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.at.t.Fatalf("waybill serve ended by itself: %v", err)
	}
}

// Stop ends the program as a deploy would: it must exit with 0 within 30 s.
func (p *Process) Stop() {
	p.at.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.AwaitEnd()
}

// AwaitEnd waits for a program that was asked to stop.
func (p *Process) AwaitEnd() {
	t := p.at.t
	t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("waybill serve after SIGTERM: %v", p.err)
		}
	case <-time.After(30 * time.Second):
		t.Error("waybill serve does not stop on SIGTERM")
		p.Kill()
	}
}

// Log is what programs wrote. It may be read while it is written.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes what a program writes.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// All returns everything.
func (l *Log) All() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Tail returns the last n bytes, or all there are.
func (l *Log) Tail(n int) string {
	text := l.All()
	return text[max(0, len(text)-n):]
}
