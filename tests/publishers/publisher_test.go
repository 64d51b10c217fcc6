package publishers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/pgxtx"
	"github.com/waybill-dev/waybill/tests/node"
)

// transaction is what a publisher is asked to do: write a row of the application's own and the
// events, in one transaction, and end it.
type transaction struct {
	Order    string          `json:"order"`
	Events   []waybill.Event `json:"-"`
	Rollback bool            `json:"rollback"`
}

// outcome is what it saw: the ids, or the SQLSTATE that ended the transaction.
type outcome struct {
	IDs      []string `json:"ids"`
	SQLState string   `json:"sqlstate"`
}

// publisher is one way to talk to the database. It runs the transactions one after the other.
type publisher struct {
	name string
	run  func(t *testing.T, dsn string, todo []transaction) []outcome
}

func publishers() []publisher {
	all := []publisher{
		{"psql", each(psql)},
		{"python", python},
		{"node", nodejs},
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		all = append(all,
			publisher{"pgx " + mode.String(), each(throughPgx(mode, false))},
			publisher{"pgx all at once " + mode.String(), each(throughPgx(mode, true))},
			publisher{"database/sql " + mode.String(), each(throughSQL(mode))},
		)
	}
	return all
}

func each(run func(*testing.T, string, transaction) outcome) func(*testing.T, string, []transaction) []outcome {
	return func(t *testing.T, dsn string, todo []transaction) []outcome {
		t.Helper()
		outcomes := make([]outcome, len(todo))
		for i, tx := range todo {
			outcomes[i] = run(t, dsn, tx)
		}
		return outcomes
	}
}

const insertOrder = `INSERT INTO app_order (id) VALUES ($1)`

func throughPgx(mode pgx.QueryExecMode, atOnce bool) func(*testing.T, string, transaction) outcome {
	return func(t *testing.T, dsn string, todo transaction) outcome {
		ctx := t.Context()
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := tx.Exec(ctx, insertOrder, todo.Order); err != nil {
			t.Fatal(err)
		}
		ids, err := publish(ctx, pgxtx.Wrap(tx), todo.Events, atOnce)
		if err != nil {
			return outcome{SQLState: stateOf(t, err)}
		}
		if todo.Rollback {
			return outcome{IDs: ids}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		return outcome{IDs: ids}
	}
}

func throughSQL(mode pgx.QueryExecMode) func(*testing.T, string, transaction) outcome {
	return func(t *testing.T, dsn string, todo transaction) outcome {
		ctx := t.Context()
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		db := stdlib.OpenDB(*config)
		defer db.Close()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, insertOrder, todo.Order); err != nil {
			t.Fatal(err)
		}
		ids, err := publish(ctx, tx, todo.Events, false)
		if err != nil {
			return outcome{SQLState: stateOf(t, err)}
		}
		if todo.Rollback {
			return outcome{IDs: ids}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		return outcome{IDs: ids}
	}
}

func publish[R waybill.Row](ctx context.Context, tx waybill.Tx[R], events []waybill.Event, atOnce bool) ([]string, error) {
	if atOnce {
		return waybill.PublishAll(ctx, tx, events)
	}
	var ids []string
	for _, e := range events {
		id, err := waybill.Publish(ctx, tx, e)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// stateOf turns the sentinel the Go API answers with back into its SQLSTATE.
func stateOf(t *testing.T, err error) string {
	t.Helper()
	for state, sentinel := range map[string]error{
		"WB001": waybill.ErrUnknownTenant,
		"WB002": waybill.ErrInvalidPayload,
		"WB003": waybill.ErrPayloadTooLarge,
		"WB004": waybill.ErrIdempotencyConflict,
		"WB005": waybill.ErrBadEvent,
	} {
		if errors.Is(err, sentinel) {
			return state
		}
	}
	t.Fatalf("an error without a sentinel: %v", err)
	return ""
}

// psql quotes what it is given as variables itself: :'name' is a literal.
func psql(t *testing.T, dsn string, todo transaction) outcome {
	t.Helper()
	var script strings.Builder
	args := []string{"--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=sqlstate", "--set=order=" + todo.Order}
	script.WriteString("BEGIN;\nINSERT INTO app_order (id) VALUES (:'order');\n")
	for i, e := range todo.Events {
		// Through a file: a payload may be too long for an argument.
		fmt.Fprintf(&script, "\\set payload `cat %s`\n", file(t, e.Payload))
		call := []string{"payload => :'payload'"}
		for name, value := range arguments(t, e) {
			if name != "payload" {
				args = append(args, fmt.Sprintf("--set=%s%d=%s", name, i, value))
				call = append(call, fmt.Sprintf("%s => :'%s%d'", name, name, i))
			}
		}
		fmt.Fprintf(&script, "SELECT waybill.publish(%s);\n", strings.Join(call, ", "))
	}
	script.WriteString(map[bool]string{false: "COMMIT;\n", true: "ROLLBACK;\n"}[todo.Rollback])

	cmd := exec.CommandContext(t.Context(), "psql", append(args, dsn)...)
	cmd.Stdin = strings.NewReader(script.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		_, state, found := strings.Cut(stderr.String(), "ERROR:  ")
		if !found {
			t.Fatalf("psql: %v\n%s", err, stderr.String())
		}
		return outcome{SQLState: strings.TrimSpace(state)}
	}
	return outcome{IDs: strings.Fields(string(out))}
}

const pythonProgram = `
import json, sys
import psycopg
job = json.load(sys.stdin)

def run(todo):
    ids = []
    try:
        with psycopg.connect(job["dsn"]) as conn:
            conn.execute("INSERT INTO app_order (id) VALUES (%s)", [todo["order"]])
            for e in todo["events"]:
                named = ", ".join(f"{name} => %({name})s" for name in e)
                ids.append(conn.execute(f"SELECT waybill.publish({named})", e).fetchone()[0])
            if todo["rollback"]:
                conn.rollback()
        return {"ids": ids}
    except psycopg.Error as error:
        return {"sqlstate": error.sqlstate}

print(json.dumps([run(todo) for todo in job["todo"]]))
`

// python uses the distribution's own interpreter, which has the distribution's psycopg.
func python(t *testing.T, dsn string, todo []transaction) []outcome {
	t.Helper()
	const interpreter = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), interpreter, "-c", "import psycopg").CombinedOutput(); err != nil {
		t.Fatalf("this test needs %s with psycopg (Debian: python3-psycopg): %v\n%s", interpreter, err, out)
	}
	return scripted(t, exec.CommandContext(t.Context(), interpreter, "-c", pythonProgram), dsn, todo)
}

const nodeProgram = `
const pg = require("pg");
const job = JSON.parse(require("fs").readFileSync(0, "utf8"));

async function run(client, todo) {
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO app_order (id) VALUES ($1)", [todo.order]);
    const ids = [];
    for (const e of todo.events) {
      const names = Object.keys(e);
      const call = names.map((name, i) => name + " => $" + (i + 1)).join(", ");
      const result = await client.query("SELECT waybill.publish(" + call + ") AS id", names.map((name) => e[name]));
      ids.push(result.rows[0].id);
    }
    await client.query(todo.rollback ? "ROLLBACK" : "COMMIT");
    return { ids };
  } catch (error) {
    if (!error.code) throw error;
    await client.query("ROLLBACK");
    return { sqlstate: error.code };
  }
}

(async () => {
  const client = new pg.Client({ connectionString: job.dsn });
  await client.connect();
  const outcomes = [];
  for (const todo of job.todo) outcomes.push(await run(client, todo));
  await client.end();
  console.log(JSON.stringify(outcomes));
})();
`

func nodejs(t *testing.T, dsn string, todo []transaction) []outcome {
	t.Helper()
	return scripted(t, node.Command(t, nodeProgram), dsn, todo)
}

// scripted hands the work to a program as JSON and reads the outcomes. Arguments that are not set
// are left out, as an application would; the payload is a string in both languages.
func scripted(t *testing.T, cmd *exec.Cmd, dsn string, todo []transaction) []outcome {
	t.Helper()
	type step struct {
		transaction
		Events []map[string]string `json:"events"`
	}
	job := struct {
		DSN  string `json:"dsn"`
		Todo []step `json:"todo"`
	}{DSN: dsn}
	for _, tx := range todo {
		s := step{transaction: tx}
		for _, e := range tx.Events {
			s.Events = append(s.Events, arguments(t, e))
		}
		job.Todo = append(job.Todo, s)
	}
	input, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Path, err, stderr.String())
	}
	var outcomes []outcome
	if err := json.Unmarshal(out, &outcomes); err != nil || len(outcomes) != len(todo) {
		t.Fatalf("%s said %q: %v", cmd.Path, out, err)
	}
	return outcomes
}

// arguments are the event's set fields by the names of waybill.publish.
func arguments(t *testing.T, e waybill.Event) map[string]string {
	t.Helper()
	all := map[string]string{
		"tenant": e.Tenant, "type": e.Type, "payload": string(e.Payload), "id": e.ID,
		"ordering_key": e.OrderingKey, "idempotency_key": e.IdempotencyKey, "metadata": metadata(t, e),
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// metadata is the event's metadata as JSON, "" for none.
func metadata(t *testing.T, e waybill.Event) string {
	t.Helper()
	if e.Metadata == nil {
		return ""
	}
	text, err := json.Marshal(e.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
