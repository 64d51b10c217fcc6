package waybill_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/waybill-dev/waybill"
)

// The payment and its event stand or fall together.
func ExamplePublish() {
	ctx := context.Background()
	db, closeDB := exampleDatabase() // *sql.DB, PostgreSQL or SQLite, with the tenant acme
	defer closeDB()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO payment (id, state) VALUES ('pay_1', 'succeeded')`); err != nil {
		log.Fatal(err)
	}
	id, err := waybill.Publish(ctx, tx, waybill.Event{
		Tenant:         "acme",
		Type:           "payment.succeeded",
		Payload:        []byte(`{"id":"pay_1"}`),
		IdempotencyKey: "pay_1 succeeded",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(id[:4], len(id))
	// Output: evt_ 30
}

// A refusal says which of five things is wrong.
func ExamplePublish_refused() {
	ctx := context.Background()
	db, closeDB := exampleDatabase()
	defer closeDB()

	_, err := waybill.Publish(ctx, db, waybill.Event{
		Tenant:  "nobody",
		Type:    "payment.succeeded",
		Payload: []byte(`{"id":"pay_1"}`),
	})
	switch {
	case errors.Is(err, waybill.ErrUnknownTenant):
		fmt.Println("this customer has no webhooks; that is fine")
	case err != nil:
		log.Fatal(err)
	}
	// Output: this customer has no webhooks; that is fine
}

// Many events in one round trip, all or none.
func ExamplePublishAll() {
	ctx := context.Background()
	db, closeDB := exampleDatabase()
	defer closeDB()

	ids, err := waybill.PublishAll(ctx, db, []waybill.Event{
		{Tenant: "acme", Type: "invoice.created", Payload: []byte(`{"id":"in_1"}`), OrderingKey: "in_1"},
		{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":"in_1"}`), OrderingKey: "in_1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids))
	// Output: 2
}

// exampleDatabase is an application's SQLite file with a table payment.
func exampleDatabase() (db *sql.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "waybill-example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = openSQLiteFile(context.Background(), filepath.Join(dir, "app.db"), "_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE payment (id text, state text)`); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}
