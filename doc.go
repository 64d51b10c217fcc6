// Package waybill publishes events from an application into Waybill, inside the application's
// own database transaction.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	// the business row and the event stand or fall together
//	_, err = tx.ExecContext(ctx, `UPDATE payment SET state = 'succeeded' WHERE id = $1`, id)
//	_, err = waybill.Publish(ctx, tx, waybill.Event{Tenant: "acme", Type: "payment.succeeded", Payload: body})
//	err = tx.Commit()
//
// # The promise
//
// An event is accepted when the transaction it was published in has committed. From then on it
// is never lost: no crash, deploy, full disk or broken receiver changes that. If the transaction
// rolls back, nothing was ever published. Publish does nothing outside the transaction: no
// connection of its own, no goroutine, no network.
//
// An accepted event is delivered at least once to every endpoint of the tenant that wants its
// type. A receiver may see it again where the outcome of a try could not be known (a crash or a
// cut connection between its answer and our record of it), and always under the same id: the one
// Publish returns, sent as webhook-id.
//
// The bytes delivered and signed are the bytes published, white space included.
//
// # What remains the caller's
//
// The promise is as strong as the caller's commit. A session with synchronous_commit=off may
// lose its last transactions in a crash of the server, and the events go with the rows they
// belong to. After an error from Commit that does not say what happened (a cut connection), the
// caller cannot know whether the event exists; publishing again with the same IdempotencyKey, or
// the same ID, is safe either way.
//
// An IdempotencyKey or a chosen ID is unique like any key: while another transaction that wrote
// the same one is open, Publish waits for it to end. Transactions that write several should
// write them in one order, as with any rows.
//
// Events are handed to endpoints in the order of acceptance, which under concurrent transactions
// is neither the order of their ids nor that of their commits. Receivers that care have
// waybill-sequence, which is gapless per endpoint, and the time inside their own payload.
//
// # PostgreSQL
//
// Publish is one statement, SELECT waybill.publish(…). It works with database/sql and any driver
// (pgx, lib/pq), through pgxtx.Wrap with pgx itself, in all of pgx's query modes, and behind
// transaction-pooling proxies. The role needs USAGE on the schema waybill and EXECUTE on the
// function, nothing else. What can be judged without the database (the shape of a key, the JSON
// of a payload) is judged before the statement is sent; any error the database raises aborts the
// transaction, as every error does in PostgreSQL.
//
// # SQLite
//
// Publish writes into the waybill_ tables of the same database file, with any database/sql
// driver. Begin the transaction with BEGIN IMMEDIATE (modernc.org/sqlite: _txlock=immediate in
// the DSN): one that has read first and writes later is refused at once, with SQLITE_BUSY, if
// somebody else wrote in between, and no time-out helps. A refused event leaves the transaction
// as it was. Without a transaction (*sql.DB) the event gets one of its own.
package waybill
