// Serve receives Stripe's webhooks at POST /stripe.
//
//	DATABASE_URL=postgres://… STRIPE_WEBHOOK_SECRET=whsec_… go run ./examples/billing/serve
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/examples/billing"
	"github.com/waybill-dev/waybill/receive/pgstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, pgstore.Schema+billing.Schema); err != nil {
		log.Fatal(err)
	}
	inbox, err := billing.New(ctx, pool, os.Getenv("STRIPE_WEBHOOK_SECRET"))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /stripe", inbox)
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil)) }()
	if err := inbox.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
