package oracles

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	svix "github.com/svix/svix-webhooks/go"

	"github.com/waybill-dev/waybill/examples/inboundmail"
	"github.com/waybill-dev/waybill/internal/redistest"
)

const resendSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// withBody gives a request its body and one more header.
func withBody(r *http.Request, body, name, value string) *http.Request {
	r.Body = io.NopCloser(strings.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set(name, value)
	return r
}

// queue is the support queue's mail server, as far as it is needed.
type queue struct {
	listener net.Listener
	mu       sync.Mutex
	mails    []string
	refuse   bool
}

func newQueue(t *testing.T) *queue {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { q.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return q
}

func (q *queue) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	fmt.Fprint(conn, "220 queue\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(strings.Fields(line + " x")[0]); verb {
		case "DATA":
			fmt.Fprint(conn, "354 go on\r\n")
			var mail strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				mail.WriteString(line)
			}
			q.mu.Lock()
			refuse := q.refuse
			if !refuse {
				q.mails = append(q.mails, mail.String())
			}
			q.mu.Unlock()
			if refuse {
				fmt.Fprint(conn, "451 not now\r\n")
			} else {
				fmt.Fprint(conn, "250 taken\r\n")
			}
		case "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
			return
		default:
			fmt.Fprint(conn, "250 ok\r\n")
		}
	}
}

func (q *queue) got() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string{}, q.mails...)
}

// desk is the example with everything around it.
type desk struct {
	t     *testing.T
	redis *redistest.Server
	queue *queue
	mail  http.Handler
	panel *inboundmail.Panel
	fetch func(ctx context.Context, id string) ([]byte, error)
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, redis: redistest.Start(t, "--appendonly", "yes"), queue: newQueue(t)}
	d.fetch = func(_ context.Context, id string) ([]byte, error) {
		return []byte("From: Ada <ada@example.com>\r\nSubject: help " + id + "\r\n\r\nIt does not work.\r\n"), nil
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: d.redis.Socket(), MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	sync, panel, err := inboundmail.New(t.Context(), inboundmail.Config{
		Redis: rdb, Secret: resendSecret, SMTP: d.queue.listener.Addr().String(), Queue: "support@example.com",
		Fetch: func(ctx context.Context, id string) ([]byte, error) { return d.fetch(ctx, id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d.mail, d.panel = sync, panel
	t.Cleanup(func() { sync.Shutdown(context.WithoutCancel(t.Context())) })
	return d
}

// send posts the event of a received mail, signed by Svix's own library.
func (d *desk) send(id string) int {
	d.t.Helper()
	hook, err := svix.NewWebhook(resendSecret)
	if err != nil {
		d.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"type":"email.received","data":{"email_id":%q}}`, "mail-"+id)
	now := time.Now()
	signature, err := hook.Sign("msg_"+id, now, []byte(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/resend", nil)
	r.Header.Set("Svix-Id", "msg_"+id)
	r.Header.Set("Svix-Timestamp", fmt.Sprint(now.Unix()))
	w := httptest.NewRecorder()
	d.mail.ServeHTTP(w, withBody(r, body, "Svix-Signature", signature))
	return w.Code
}

func (d *desk) want(what string, status, want int) {
	d.t.Helper()
	if status != want {
		d.t.Errorf("%s: %d, want %d", what, status, want)
	}
}

func TestInboundMail_onceEach(t *testing.T) {
	d := newDesk(t)
	var sent sync.WaitGroup
	for range 20 { // copies at once: those that come while it is under way wait for its end
		sent.Go(func() { d.want("a copy", d.send("1"), 200) })
	}
	sent.Wait()
	d.want("its repeat", d.send("1"), 200)
	d.want("another", d.send("2"), 200)
	mails := d.queue.got()
	if len(mails) != 2 || !strings.Contains(mails[0], "X-Support-Id: msg_1\r\n") || !strings.Contains(mails[0], "Subject: help mail-1\r\n") {
		t.Errorf("%d mails: %q", len(mails), mails)
	}
	if c := d.panel.Counts(); c.Forwarded != 2 || c.Degraded != 0 {
		t.Errorf("panel %+v", c)
	}
}

// A queue that refuses is a failure; nothing is told 2xx that is not in the queue.
func TestInboundMail_failsAndIsTriedAgain(t *testing.T) {
	d := newDesk(t)
	d.queue.mu.Lock()
	d.queue.refuse = true
	d.queue.mu.Unlock()
	d.want("refused by the queue", d.send("1"), 503)
	d.queue.mu.Lock()
	d.queue.refuse = false
	d.queue.mu.Unlock()
	good := d.fetch
	d.fetch = func(context.Context, string) ([]byte, error) { return nil, errors.New("not found yet") }
	d.want("not to be fetched yet", d.send("1"), 503)
	d.fetch = good
	d.want("the provider's retry", d.send("1"), 200)
	if mails := d.queue.got(); len(mails) != 1 {
		t.Errorf("%d mails", len(mails))
	}
	if c := d.panel.Counts(); c.Failed != 2 || c.Forwarded != 1 {
		t.Errorf("panel %+v", c)
	}
}

// With Redis away mail goes on, marked, and the panel says so; afterwards it is protected again.
func TestInboundMail_redisDown(t *testing.T) {
	d := newDesk(t)
	d.redis.Kill()
	d.want("without Redis", d.send("1"), 200)
	d.want("a repeat without Redis", d.send("1"), 200)
	mails := d.queue.got()
	if len(mails) != 2 || !strings.Contains(mails[1], "X-Support-Unprotected: store_") || !strings.Contains(mails[1], "X-Support-Id: msg_1\r\n") {
		t.Errorf("%q", mails)
	}
	w := httptest.NewRecorder()
	d.panel.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if c := d.panel.Counts(); c.Degraded != 2 || !strings.Contains(w.Body.String(), `<tr class="bad"><td>Unprotected runs<td>2, the last at `) {
		t.Errorf("panel %+v\n%s", c, w.Body)
	}
	d.redis.Restart()
	d.want("with Redis back", d.send("2"), 200)
	d.want("its repeat", d.send("2"), 200)
	if mails := d.queue.got(); len(mails) != 3 {
		t.Errorf("%d mails, want 3", len(mails))
	}
}
