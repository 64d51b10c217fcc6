package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Strangers who send a header and never its end take nobody's turn, and are shown the door.
func TestNewServer_slowClientsHoldNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	addr := newFixture(t).served()
	const strangers = 500
	var leaving sync.WaitGroup
	for range strangers {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "POST /v1/tenants/acme/events HTTP/1.1\r\nHost: x\r\nX-")
		must(t, err)
		leaving.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // it would wait for ever
			var told net.Error
			if _, err := io.ReadAll(conn); errors.As(err, &told) && told.Timeout() {
				t.Error("a stranger whose header never ends is waited for, a minute by now")
			}
		})
	}
	for range 20 {
		res, err := http.Get("http://" + addr + "/healthz")
		must(t, err)
		must(t, res.Body.Close())
		if res.StatusCode != http.StatusOK {
			t.Errorf("beside %d strangers: %s", strangers, res.Status)
		}
	}
	leaving.Wait()
}
