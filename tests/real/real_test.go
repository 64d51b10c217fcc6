package real

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/node"
	"github.com/waybill-dev/waybill/tests/program"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestReal_everyExampleArrivesByteForByte(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and sends about 1,500 webhooks")
	}
	examples := load(t)
	binary := program.Build(t)

	t.Run("PostgreSQL", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		server := program.Serve(t, binary, dsn)
		receiver := receive(t, server)
		db := open(t, "pgx", dsn)
		bySQL := func(e example) string {
			var id string
			err := db.QueryRowContext(t.Context(), `SELECT waybill.publish(tenant => 'octo', type => $1, payload => $2)`,
				e.eventType, string(e.payload)).Scan(&id)
			if err != nil {
				t.Fatalf("%s: %v", e.eventType, err)
			}
			return id
		}
		arrive(t, receiver, publish(t, server, examples, bySQL))
	})

	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.db")
		server := program.Serve(t, binary, "sqlite://"+path)
		receiver := receive(t, server)
		db := open(t, "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
		bySQL := func(e example) string {
			id, err := waybill.Publish(t.Context(), db, waybill.Event{Tenant: "octo", Type: e.eventType, Payload: e.payload})
			if err != nil {
				t.Fatalf("%s: %v", e.eventType, err)
			}
			return id
		}
		arrive(t, receiver, publish(t, server, examples, bySQL))
	})
}

// example is a payload as it stands in the file, indentation included.
type example struct {
	eventType string
	payload   []byte
}

func load(t *testing.T) []example {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(node.Modules(t), "@octokit", "webhooks-examples", "*", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []example
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definitions []struct {
			Name     string            `json:"name"`
			Examples []json.RawMessage `json:"examples"` // keeps the bytes
		}
		if err := json.Unmarshal(text, &definitions); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, d := range definitions {
			for _, payload := range d.Examples {
				examples = append(examples, example{"github." + d.Name, payload})
			}
		}
	}
	if len(examples) < 300 {
		t.Fatalf("%d examples in %v: the package is not what it was", len(examples), files)
	}
	return examples
}

// publish publishes every example twice, by HTTP and by SQL, and returns what must arrive.
func publish(t *testing.T, server *program.Server, examples []example, bySQL func(example) string) map[string]example {
	t.Helper()
	sent := make(map[string]example, 2*len(examples))
	for _, e := range examples {
		var accepted struct {
			ID string `json:"id"`
		}
		// By hand: the bytes of the payload must reach the server as they are.
		body := fmt.Appendf(nil, `{"type": %q, "payload": %s}`, e.eventType, e.payload)
		server.Call(http.MethodPost, "/v1/tenants/octo/events", body, http.StatusAccepted, &accepted)
		sent[accepted.ID] = e
		sent[bySQL(e)] = e
	}
	if len(sent) != 2*len(examples) {
		t.Fatalf("%d ids for %d events", len(sent), 2*len(examples))
	}
	return sent
}

// arrival is what the receiver on Node.js says about one request.
type arrival struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Body  string `json:"body"` // base64
	Error string `json:"error"`
}

const receiverProgram = `
const http = require("http");
const { Webhook } = require("standardwebhooks");
let webhook;
require("readline").createInterface({ input: process.stdin })
  .on("line", (secret) => { webhook = new Webhook(secret); })
  .on("close", () => process.exit(0));
const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    const told = { id: request.headers["webhook-id"], type: request.headers["waybill-event-type"], body: body.toString("base64") };
    try {
      webhook.verify(body, request.headers);
      response.writeHead(204);
    } catch (error) {
      told.error = String(error);
      response.writeHead(401);
    }
    process.stdout.write(JSON.stringify(told) + "\n");
    response.end();
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
`

// receive starts the receiver, makes the endpoint for it and tells it the secret.
func receive(t *testing.T, server *program.Server) *bufio.Reader {
	t.Helper()
	cmd := node.Command(t, receiverProgram)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close() // it ends with its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("the receiver: %v\n%s", err, stderr.String())
		}
	})
	arrivals := bufio.NewReader(stdout)
	port, err := arrivals.ReadString('\n')
	if err != nil {
		t.Fatalf("the receiver did not start: %v", err)
	}
	secret := server.Endpoint("octo", "http://127.0.0.1:"+strings.TrimSpace(port)+"/hooks")
	if _, err := io.WriteString(stdin, secret+"\n"); err != nil {
		t.Fatal(err)
	}
	return arrivals
}

// arrive reads what the receiver says until everything that was sent has come, verified and equal.
func arrive(t *testing.T, arrivals *bufio.Reader, sent map[string]example) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for {
			line, err := arrivals.ReadBytes('\n')
			if err != nil {
				return // the receiver has ended, or what it said does
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	missing := len(sent)
	seen := make(map[string]bool, len(sent))
	for missing > 0 {
		var line []byte
		select {
		case line = <-lines:
		case <-ctx.Done():
		}
		if line == nil {
			t.Fatalf("%d of %d events did not arrive", missing, len(sent))
		}
		var got arrival
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("the receiver said %q: %v", line, err)
		}
		want, ok := sent[got.ID]
		if !ok {
			t.Fatalf("an event nobody published: %s", got.ID)
		}
		body, err := base64.StdEncoding.DecodeString(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got.Error != "" {
			t.Errorf("%s %s: %s", got.Type, got.ID, got.Error)
		}
		if got.Type != want.eventType || !bytes.Equal(body, want.payload) {
			t.Errorf("%s arrived as %s with %d bytes, want %s with %d, byte for byte", got.ID, got.Type, len(body), want.eventType, len(want.payload))
		}
		if !seen[got.ID] {
			seen[got.ID] = true
			missing--
		}
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
