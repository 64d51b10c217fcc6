package receive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/memstore"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/signature"
)

const exampleSecret = "whsec_an_example_of_more_than_16_bytes"

// fulfil is a handler: it may run more than once, and an error makes it run again.
func fulfil(_ context.Context, d *receive.Delivery) error {
	fmt.Println("fulfil", d.Topic, d.ID)
	return nil
}

// Written down first, answered, and handled afterwards. In your program Store is pgstore.New(pool),
// and a goroutine is in inbox.Run.
func ExampleNewInbox() {
	ctx := context.Background()
	src := receive.Source{Name: "billing", Provider: providers.Stripe(), Secrets: receive.Secrets(exampleSecret)}
	inbox, err := receive.NewInbox(ctx, receive.InboxConfig{Source: src, Store: receivetest.NewStore(), Handler: fulfil, RunElsewhere: true})
	if err != nil {
		panic(err)
	}
	t := new(testing.T)
	for range 2 { // Stripe sends it, and again
		res := receivetest.Post(t, inbox, src, `{"id":"evt_1","type":"invoice.paid"}`)
		fmt.Println(res.StatusCode)
	}
	runs, err := inbox.RunDue(ctx)
	fmt.Println(runs, err)
	// Output:
	// 200
	// 200
	// fulfil invoice.paid evt_1
	// 1 <nil>
}

// The answer comes from the handler: Twilio wants TwiML.
func ExampleNewSync() {
	ctx := context.Background()
	src := receive.Source{
		Name: "voice", Provider: providers.Twilio(), Secrets: receive.Secrets("0123456789abcdef0123456789abcdef"),
		PublicURL: "https://example.com/voice",
	}
	sync, err := receive.NewSync(ctx, receive.SyncConfig{
		Source: src, Store: memstore.New(10_000), Deadline: 3 * time.Second,
		Waive: []receive.Rule{receive.Forgets},
		Handler: func(_ context.Context, d *receive.Delivery) error {
			return d.Answer(receive.Reply{ContentType: "text/xml", Body: []byte("<Response/>")})
		},
	})
	if err != nil {
		panic(err)
	}
	res := receivetest.Post(new(testing.T), sync, src, "CallSid=CA1&From=%2B1555")
	body, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body), err)
	// Output: 200 <Response/> <nil>
}

// What can lose events does not start, and says why.
func ExampleConfigError() {
	_, err := receive.NewSync(context.Background(), receive.SyncConfig{
		Source:  receive.Source{Name: "ci", Provider: providers.GitHub(), Secrets: receive.Secrets("0123456789abcdef")},
		Store:   memstore.New(1000),
		Handler: fulfil,
		Waive:   []receive.Rule{receive.Forgets},
	})
	fmt.Println(err)
	// Output:
	// receive: source "ci" does not start:
	//   no-retries (loses): github tries once, so an event whose run dies is lost. use an Inbox.
}

func ExampleSimulate() {
	for f := range receive.Simulate(providers.Slack(), time.Second, time.Second) {
		fmt.Println("dies at", f.CrashAt, "runs at", f.RunsAt, "attempts left", f.Spare)
	}
	// Output:
	// dies at 0s runs at 2.25s attempts left 2
	// dies at 1s runs at 2.25s attempts left 2
}

// A handler you have already.
func ExampleFromHTTP() {
	old := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Println(string(body), err)
		w.WriteHeader(http.StatusNoContent)
	})
	src := receive.Source{Name: "billing", Provider: providers.Stripe(), Secrets: receive.Secrets(exampleSecret)}
	d := receivetest.Delivery(new(testing.T), src, `{"id":"evt_1"}`)
	fmt.Println(receive.FromHTTP(old)(context.Background(), d))
	// Output:
	// {"id":"evt_1"} <nil>
	// <nil>
}

// No retry helps here: it becomes a dead letter at once.
func ExamplePermanent() {
	err := receive.Permanent(errors.New("no such plan"))
	fmt.Println(err, receive.IsPermanent(err))
	// Output: no such plan true
}

func ExampleRetryAfter() {
	err := receive.RetryAfter(time.Minute, errors.New("the mail server is busy"))
	fmt.Println(err)
	// Output: the mail server is busy
}

// A store's own code reads, verifies and names the events, and nothing more.
func ExampleIntake() {
	src := receive.Source{Name: "billing", Provider: providers.Stripe(), Secrets: receive.Secrets(exampleSecret)}
	in, err := receive.NewIntake(src)
	if err != nil {
		panic(err)
	}
	handle := func(w http.ResponseWriter, r *http.Request) {
		a := in.Read(w, r, time.Now())
		if len(a.Records) == 0 {
			fmt.Println(a.Outcome, a.Reason)
			a.Answer.Send(w)
			return
		}
		for _, r := range a.Records {
			fmt.Println(r.Key.Source, r.Key.ID, r.Topic)
		}
		w.WriteHeader(in.Codes().OK)
	}
	t := new(testing.T)
	receivetest.Post(t, http.HandlerFunc(handle), src, `{"id":"evt_1","type":"invoice.paid"}`)
	r := receivetest.Request(t, src, `{"id":"evt_2"}`)
	r.Header.Set("Stripe-Signature", "t=1,v1=00")
	receivetest.Do(http.HandlerFunc(handle), r)
	// Output:
	// billing evt_1 invoice.paid
	// rejected malformed
}

// A provider of your own is data.
func ExampleProvider() {
	acme := receive.Provider{
		Name:    "acme",
		Scheme:  signature.HMAC{Header: "X-Acme-Signature", Form: "sha256={hex}", Signed: "{body}"},
		Split:   receive.JSONArray("/events"),
		ID:      receive.Lookup{Pointer: "/uuid"},
		Timeout: 5 * time.Second,
		Retries: []time.Duration{time.Minute, time.Hour},
	}
	src := receive.Source{Name: "acme", Provider: acme, Secrets: receive.Secrets("0123456789abcdef")}
	inbox, err := receive.NewInbox(context.Background(), receive.InboxConfig{Source: src, Store: receivetest.NewStore(), Handler: fulfil, RunElsewhere: true})
	if err != nil {
		panic(err)
	}
	t := new(testing.T)
	receivetest.Post(t, inbox, src, `{"events":[{"uuid":"a"},{"uuid":"b"}]}`)
	runs, err := inbox.RunDue(context.Background())
	fmt.Println(runs, err)
	// Output:
	// fulfil  a
	// fulfil  b
	// 2 <nil>
}
