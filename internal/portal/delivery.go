package portal

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// deliveryPage is one delivery, with all that is known of why it is where it is.
type deliveryPage struct {
	client.Delivery
	Chip     chip
	Lead     string // one line under the title
	LeadAt   *time.Time
	Fault    *fault
	Wait     *waitNote
	Steps    []step
	Earlier  string // the address of the attempts before those shown
	Payload  *body
	Gone     string // why there is no payload
	Endpoint string // the address of its page
	Event    string
	Act      string // where it is replayed
	Curl     string // whether there is a command to copy: the id of its element
	Fresh    string // the address of one that is signed now; "": there is none
	Draft    string // the address of the endpoint's page, where this was a good test of a draft
	Newer    string // the addresses of the failed deliveries beside this one
	Older    string
	Verb     string // on the button; "": there is none
}

// shownAttempts is how many attempts one page shows; their details share a budget, so that the
// page stays light whatever was answered.
const (
	shownAttempts = 50
	detailBudget  = 48 << 10
	payloadBudget = 32 << 10
)

func (c *customer) delivery(v *Visit) error {
	id := v.PathValue("dlv")
	d, err := Ask[client.Delivery](v, v.tenantPath("deliveries", id), nil)
	if err != nil {
		return err
	}
	query := url.Values{"order": {"desc"}, "limit": {strconv.Itoa(shownAttempts)}}
	if before := v.URL.Query().Get("before"); before != "" {
		query.Set("cursor", before)
	}
	attempts, err := Ask[client.Page[client.Attempt]](v, v.tenantPath("deliveries", id, "attempts"), query)
	if err != nil {
		return err
	}
	page := &deliveryPage{
		Delivery: d, Chip: chipOf(d), Act: v.at("replay"), Verb: "Replay",
		Endpoint: v.at("endpoints", d.EndpointID), Event: v.at("events", d.EventID),
	}
	if d.State == "pending" {
		page.Verb = "Send now"
	}
	if d.Waiting != nil && d.Waiting.Reason == "order" {
		page.Verb = "" // nothing jumps that queue
	}
	if page.Payload, page.Gone, err = readPayload(v, d.EventID); err != nil {
		return err
	}
	if attempts.NextCursor != nil {
		page.Earlier = withQuery(v.at("deliveries", id), url.Values{"before": {*attempts.NextCursor}})
	}
	slices.Reverse(attempts.Data)
	views := showAttempts(attempts.Data, v.URL.Query().Get("attempt"), v.at("deliveries", id), page.Payload)
	page.Steps = timeline(d, views, page.Earlier != "")
	page.Lead, page.LeadAt = lead(d)
	var last *attemptView
	if len(views) > 0 {
		last = views[len(views)-1]
		if last.Curl != "" {
			page.Curl = last.ID + "-command"
		}
	}
	if curlable(page.Payload) && v.May(string(outbox.PermissionReplay)) {
		page.Fresh = v.at("deliveries", id, "curl")
	}
	for _, view := range views {
		view.Fresh = page.Fresh
	}
	for order, to := range map[string]*string{"asc": &page.Newer, "desc": &page.Older} {
		beside, err := Ask[client.Page[client.Delivery]](v, v.tenantPath("deliveries"), url.Values{"state": {"dead"}, "after": {id}, "order": {order}, "limit": {"1"}})
		if err != nil {
			return err
		}
		if len(beside.Data) > 0 {
			*to = v.at("deliveries", beside.Data[0].ID)
		}
	}
	page.Fault, page.Wait = explain(v, d, last)
	if last != nil && last.Trigger == "test" && d.State == "delivered" {
		e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", d.EndpointID), nil)
		if err == nil && e.State == "draft" { // one that is removed by now needs no word
			page.Draft = page.Endpoint
		}
	}
	refresh := 0
	if d.State == "pending" && (d.Waiting == nil || d.Waiting.ETA == nil || d.Waiting.ETA.Sub(v.Now) < time.Minute) {
		refresh = 2 // it moves soon; the page follows
	}
	return v.Show(Page{Name: "delivery", Title: d.EventType + ", " + page.Chip.Word, Section: sectionDeliveries, Refresh: refresh, Data: page})
}

// curlPage is the command that sends the delivery once more, signed as this page was made.
type curlPage struct {
	Here, Delivery string
	Command        string
	Until          time.Time // most verifiers take the signature until then
	Secret         bool      // some headers are left to fill in
}

// freshFor is for how long after it was made most libraries take a signature.
const freshFor = 5 * time.Minute

// curl shows the request of the next attempt as a command. Looking at it sends nothing; but whoever
// has it can send in our name for a few minutes, so it is for those who may replay.
func (c *customer) curl(v *Visit) error {
	id := v.PathValue("dlv")
	p, err := Tell[client.Preview](v.Context(), v.write(), http.MethodPost, v.tenantPath("deliveries", id, "preview"), nil, "")
	if err != nil {
		return err
	}
	if !curlable(showBytes(p.Body, payloadBudget)) {
		return &Trouble{Status: http.StatusNotFound, Title: "This body does not fit on a command line",
			Text: "It is larger than 8 KiB, or is not text. Download it from the delivery's page.", Next: &Link{v.at("deliveries", id), "Back to the delivery"}}
	}
	page := &curlPage{Here: short(id), Delivery: v.at("deliveries", id), Command: curl(p.URL, p.Headers, p.Body), Until: v.Now.Add(freshFor)}
	for _, value := range p.Headers {
		page.Secret = page.Secret || value == hiddenValue
	}
	return v.Show(Page{Name: "curl", Title: "Send it yourself", Section: sectionDeliveries, Data: page})
}

// hiddenValue is what the API shows in place of a secret header's value.
const hiddenValue = "[secret]"

// lead is what became of the delivery, in one line.
func lead(d client.Delivery) (string, *time.Time) {
	a := d.LastAttempt
	switch {
	case a == nil && d.State == "pending":
		return "not tried yet, accepted at", &d.CreatedAt
	case a == nil:
		return "never tried, ended at", d.FinishedAt
	case a.StatusCode != 0:
		return "attempt " + grouped(a.N) + " was answered " + strconv.Itoa(a.StatusCode) + " at", &a.At
	}
	return "attempt " + grouped(a.N) + " got no answer at", &a.At
}

// body is bytes of an event or an answer as a page shows them.
type body struct {
	Text  string // what is shown
	Bytes int    // of the whole
	Cut   bool   // Text is only the beginning
	Raw   []byte
	URL   string // where the bytes can be downloaded; "" for nowhere
	Plain bool   // all of it is text
}

// readPayload reads an event's bytes. They are shown as they are: nothing parses them, so no
// digit is rounded and no key moved.
func readPayload(v *Visit, event string) (*body, string, error) {
	raw, err := v.API().Do(v.Context(), client.Request{Path: v.tenantPath("events", event, "payload")})
	if refused, is := errors.AsType[*client.Error](err); is && (refused.Status == http.StatusGone || refused.Status == http.StatusNotFound) {
		return nil, "The body is no longer kept: it was erased on request, or is older than what is kept. It cannot be replayed.", nil
	}
	if err != nil {
		return nil, "", err
	}
	b := showBytes(raw, payloadBudget)
	b.URL = v.at("events", event, "payload")
	return b, "", nil
}

// showBytes takes as much of the bytes as fits the budget once it is markup.
func showBytes(raw []byte, budget int) *body {
	b := &body{Bytes: len(raw), Raw: raw, Plain: utf8.Valid(raw)}
	text := string(raw)
	for i, w := 0, 0; i < len(text); i += w {
		var r rune
		r, w = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && w == 1, hidden(r):
			budget -= len(`<span class="esc">⟨U+00000⟩</span>`)
		case rightToLeft(r):
			budget -= len(`<bdi dir="ltr"></bdi>`) + w
		case strings.ContainsRune(`<>&"'`, r):
			budget -= len("&quot;")
		default:
			budget -= w
		}
		if budget < 0 {
			b.Text, b.Cut = text[:i], true
			return b
		}
	}
	b.Text = text
	return b
}
