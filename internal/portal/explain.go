package portal

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-dev/waybill/internal/client"
)

// fault is what went wrong, in plain words, and what to do about it.
type fault struct {
	Tone  string
	Title string
	Facts []string
	Quote string // the beginning of the server's answer, in its own words
	Steps []string
	Test  string     // the address of the test event's form; "": not offered
	Same  string     // the address of all that failed the same way; "": there is no such list
	Next  string     // what happens if the reader does nothing
	At    *time.Time // and when; nil: not at a moment
}

// waitNote is why a delivery waits.
type waitNote struct {
	Title  string
	Text   string
	HeldBy string
	Until  *time.Time
	ETA    *time.Time
	Behind *Link // the delivery it waits for
}

// explain says why the delivery is where it is. At most one of the two is there.
func explain(v *Visit, d client.Delivery, last *attemptView) (*fault, *waitNote) {
	switch {
	case d.State == "dead":
		return faultOf(v, d, last), nil
	case d.State == "pending" && d.Waiting != nil && d.Waiting.Reason == "retry" && last != nil:
		f := faultOf(v, d, last)
		f.Tone, f.Same, f.Test = "warn", "", ""
		f.Next, f.At = "we try again by ourselves, and nothing is lost. Attempt "+strconv.Itoa(d.AttemptCount+1)+" follows", firstTime(d.NextAttemptAt)
		return f, nil
	case d.State == "pending" && d.Waiting != nil:
		return nil, waitOf(v, d)
	}
	return nil, nil
}

func faultOf(v *Visit, d client.Delivery, last *attemptView) *fault {
	f := &fault{Tone: "bad"}
	message := ""
	if d.Dead != nil {
		message = d.Dead.Message
	}
	if message == "" && last != nil {
		message = last.Message
	}
	what, todo := faultParts(message)
	f.Title = what
	if f.Title == "" {
		f.Title = "It could not be delivered"
	}
	if last != nil {
		f.sayWhatIsKnown(last)
	}
	// Where the clock is the fault, what usually helps with the status does not.
	if todo = strings.TrimSuffix(todo, ", then replay"); todo != "" && len(f.Steps) == 0 {
		f.Steps = append(f.Steps, sentence(todo))
	}
	filter := url.Values{"state": {"dead"}, "endpoint_id": {d.EndpointID}}
	if last != nil && last.StatusCode != 0 {
		filter.Set("status_code", strconv.Itoa(last.StatusCode))
		f.Same = withQuery(v.at("deliveries"), filter)
	} else if d.Dead != nil && d.Dead.Kind != "" {
		filter.Set("kind", d.Dead.Kind)
		f.Same = withQuery(v.at("deliveries"), filter)
	}
	f.Test = v.at("endpoints", d.EndpointID) + "#test"
	f.Next = "nothing, until you replay" + whyStopped(d)
	return f
}

// sayWhatIsKnown adds what the last attempt shows beside its status: a clock that is wrong, the
// server's own words.
func (f *fault) sayWhatIsKnown(last *attemptView) {
	a := last.Attempt
	if a.Response == nil || a.Response.Hidden {
		return
	}
	then := a.At.Add(time.Duration(a.DurationMS * float64(time.Millisecond)))
	if d := skew(a.Response.Headers["date"], then); d != 0 {
		way, by := "ahead of", d
		if d < 0 {
			way, by = "behind", -d
		}
		if a.StatusCode == 400 || a.StatusCode == 401 || a.StatusCode == 403 {
			f.Title = "Your server refused the event, and its clock is " + spell(by) + " " + strings.TrimSuffix(way, " of")
			f.Steps = append(f.Steps, "Set the clock of the machine that answers; most verifiers allow five minutes.")
		}
		f.Facts = append(f.Facts, "It answered "+strconv.Itoa(a.StatusCode)+". Its own date header is "+spell(by)+" "+way+" our clock, and a signature's time is judged by its clock.")
	}
	if a.Response.Body != nil {
		f.Quote = quote(*a.Response.Body)
	}
}

// quote is the beginning of an answer that is words and not a page.
func quote(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasPrefix(text, "<") {
		return ""
	}
	const most = 160
	n := 0
	for i, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return ""
		}
		if n++; n > most {
			return strings.TrimSpace(text[:i]) + "…"
		}
	}
	return text
}

func whyStopped(d client.Delivery) string {
	if d.Dead == nil {
		return "."
	}
	switch d.Dead.Reason {
	case "permanent":
		if a := d.LastAttempt; a != nil && a.StatusCode != 0 {
			return ". A " + strconv.Itoa(a.StatusCode) + " is a final answer, so we stopped after attempt " + grouped(a.N) + "."
		}
		return ". Another try would have ended the same way, so we stopped."
	case "exhausted":
		return ". It was tried " + some(d.AttemptCount, "time", "times") + " until the retry window was used up."
	case "expired":
		return ". It waited longer than waiting deliveries are kept."
	}
	return "."
}

// waitTitles put the API's reasons into the reader's words.
var waitTitles = map[string]string{
	"breaker":         "Waiting until your server answers again",
	"paused":          "Waiting because the endpoint is paused",
	"disabled":        "Waiting because the endpoint is switched off",
	"order":           "Waiting for the event before it",
	"rate_limit":      "Waiting its turn: your server is sent only so much a second",
	"endpoint_limit":  "Waiting its turn: as many attempts as allowed are under way",
	"tenant_cap":      "Waiting its turn: as many attempts as allowed are under way",
	"backlog":         "Waiting its turn",
	"dispatch_paused": "Waiting because sending is stopped for everybody",
}

func waitOf(v *Visit, d client.Delivery) *waitNote {
	w := d.Waiting
	n := &waitNote{Title: waitTitles[w.Reason], Until: w.Until, ETA: w.ETA, HeldBy: w.Reason}
	if n.Title == "" {
		n.Title = "Waiting"
	}
	if w.Reason == "backlog" && w.Ahead != nil && *w.Ahead > 0 {
		n.Title += ": " + capped(*w.Ahead, w.Capped) + " deliveries to this endpoint go first"
	}
	n.Text = sentence(w.Detail)
	if w.Behind != nil {
		n.Behind = &Link{v.at("deliveries", w.Behind.DeliveryID), "The delivery it waits for"}
	}
	switch {
	case w.Behind != nil && w.Behind.State == "dead":
		n.Title = "Waiting behind a delivery that failed for good"
		n.Text = "This endpoint keeps order and holds the line: those with the same ordering key wait, and nothing is lost. Replay that one, and they follow."
		n.Behind.Name = "The failed delivery"
	case w.Reason == "paused" || w.Reason == "disabled":
		n.Text += " Nothing is lost: it is sent once the endpoint is resumed."
	default:
		n.Text += " Nothing is lost, and you do not have to do anything."
	}
	return n
}
