// Package billing keeps what a customer has paid for in step with Stripe.
//
// It shows the three things that go wrong in every home-made webhook handler: an event that comes
// twice, one that comes late, and a process that dies half-way. The whole answer is InTx and Newer.
package billing

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/pgstore"
	"github.com/waybill-dev/waybill/receive/providers"
)

// Schema is the application's own table.
const Schema = `
	CREATE TABLE IF NOT EXISTS entitlement (
		customer     text PRIMARY KEY,
		subscription text NOT NULL,
		active       boolean NOT NULL,
		seats        integer NOT NULL,
		since        timestamptz NOT NULL DEFAULT now()
	)`

// New makes the receiver. Serve it at the address Stripe knows, and Run it.
func New(ctx context.Context, pool *pgxpool.Pool, secret string) (*receive.Inbox, error) {
	store := pgstore.New(pool)
	return receive.NewInbox(ctx, receive.InboxConfig{
		Source: receive.Source{
			Name:     "billing",
			Provider: providers.Stripe(),
			Secrets:  receive.Secrets(secret),
			Topics:   []string{"customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted"},
		},
		Store:   store,
		Handler: store.InTx(entitle),
	})
}

// event is the part of a Stripe event that is needed here.
type event struct {
	ID      string
	Created int64
	Data    struct {
		Object struct {
			ID, Customer, Status string
			Quantity             int
		}
	}
}

// entitle writes what the subscription says, unless something newer is written already. The write
// and "this event is done" are one commit.
func entitle(ctx context.Context, tx pgx.Tx, d *receive.Delivery) error {
	var e event
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return receive.Permanent(err)
	}
	sub := e.Data.Object
	newer, err := pgstore.Newer(ctx, tx, "subscription "+sub.ID, receive.Version{At: e.Created, Tie: e.ID})
	if err != nil || !newer {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO entitlement (customer, subscription, active, seats)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (customer) DO UPDATE
		SET subscription = excluded.subscription, active = excluded.active, seats = excluded.seats`,
		sub.Customer, sub.ID, sub.Status == "active" || sub.Status == "trialing", sub.Quantity)
	return err
}
