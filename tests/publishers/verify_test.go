package publishers

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/tests/loopback"
	"github.com/waybill-dev/waybill/tests/node"
	"github.com/waybill-dev/waybill/tests/program"
)

// What the page on verifying shows takes what a server really delivers, and refuses what somebody
// else signed.
func TestReceivers_everySnippetOfTheDocumentationVerifies(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and starts a receiver for each language")
	}
	server := program.Serve(t, program.Build(t), "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	run := map[string]func(source string) *exec.Cmd{
		"js": func(source string) *exec.Cmd { return node.Command(t, source) },
		"python": func(source string) *exec.Cmd {
			libraries := filepath.Join(t.TempDir(), "libraries")
			pip := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--target", libraries, "standardwebhooks==1.0.1")
			if out, err := pip.CombinedOutput(); err != nil {
				t.Fatalf("pip: %v\n%s", err, out)
			}
			cmd := exec.Command("/usr/bin/python3", "-u", write(t, filepath.Join(t.TempDir(), "receiver.py"), source))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+libraries)
			return cmd
		},
		"go": func(source string) *exec.Cmd {
			binary := filepath.Join(t.TempDir(), "receiver")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, write(t, filepath.Join(t.TempDir(), "receiver.go"), source))
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			return exec.Command(binary)
		},
	}
	for _, b := range fenced(t, filepath.Join(root, "docs", "verify.md")) {
		make := run[b.language]
		if make == nil {
			continue // the page says that these are not run
		}
		delete(run, b.language)
		t.Run(b.language, func(t *testing.T) {
			host, _, err := loopback.Address()
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", ":0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			l.Close()
			address := net.JoinHostPort(host, port)
			secret := server.Endpoint("tenant-"+b.language, "http://"+address+"/")

			cmd := make(b.text)
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			cmd.Env = append(cmd.Env, "PORT="+port, "WEBHOOK_SECRET="+secret)
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Signal(syscall.SIGKILL)
				_ = cmd.Wait()
				if t.Failed() {
					t.Logf("the receiver said:\n%s", said.String())
				}
			})
			for deadline := time.Now().Add(20 * time.Second); ; {
				if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
					conn.Close()
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the receiver does not listen")
				}
				<-time.After(20 * time.Millisecond)
			}

			var accepted struct {
				ID string `json:"id"`
			}
			server.Call(http.MethodPost, "/v1/tenants/tenant-"+b.language+"/events",
				[]byte(`{"type":"order.paid","payload":{ "amount": 1.10, "name": "é<&>" }}`), http.StatusAccepted, &accepted)
			type deliveries struct {
				Data []struct {
					State       string `json:"state"`
					LastAttempt *struct {
						StatusCode int    `json:"status_code"`
						Message    string `json:"message"`
					} `json:"last_attempt"`
				} `json:"data"`
			}
			var found deliveries
			for deadline := time.Now().Add(20 * time.Second); len(found.Data) == 0 || found.Data[0].LastAttempt == nil; {
				if time.Now().After(deadline) {
					t.Fatal("nothing was attempted")
				}
				server.Call(http.MethodGet, "/v1/tenants/tenant-"+b.language+"/events/"+accepted.ID+"/deliveries", nil, http.StatusOK, &found)
			}
			if d := found.Data[0]; d.State != "delivered" || d.LastAttempt.StatusCode != http.StatusNoContent {
				t.Errorf("the delivery is %s after %+v", d.State, d.LastAttempt)
			}

			forged, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/", strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{
				"webhook-id": accepted.ID, "webhook-timestamp": strconv.FormatInt(time.Now().Unix(), 10), "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
			} {
				forged.Header.Set(name, value)
			}
			answer, err := http.DefaultClient.Do(forged)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("a forged request is answered %d, want 401", answer.StatusCode)
			}
		})
	}
	if len(run) > 0 {
		t.Errorf("the page has no snippet for %v", run)
	}
}
