package pgxtx_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/pgxtx"
)

func ExampleWrap() {
	ctx := context.Background()
	dsn, drop := exampleDatabase() // PostgreSQL, with the tenant acme and a table payment
	defer drop()
	conn, err := pgx.Connect(ctx, dsn) // or a pool
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO payment (id, state) VALUES ('pay_1', 'succeeded')`); err != nil {
			return err
		}
		_, err := waybill.Publish(ctx, pgxtx.Wrap(tx), waybill.Event{
			Tenant:  "acme",
			Type:    "payment.succeeded",
			Payload: []byte(`{"id":"pay_1"}`),
		})
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}
