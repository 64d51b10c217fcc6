package portal

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// attemptView is one attempt of a timeline.
type attemptView struct {
	client.Attempt
	ID         string // of its element
	Tone, Icon string
	Result     string
	Bars       []phase
	Open       bool
	Details    bool   // whether they are on this page
	URL        string // where they are, if not
	Sent       []headerLine
	Answer     []headerLine
	Body       *body
	Payload    *body
	Curl       string
	Fresh      string // where there is one that is signed now; "": nowhere
	Why        string // why there is no answer to show
}

// headerLine is a header as it is shown, with what is odd about it.
type headerLine struct {
	Name, Value string
	Note        string // "": nothing
}

// phase is a part of an attempt's time.
type phase struct {
	Class, Name string
	MS          float64
	X, Width    string // in percent of the attempt
}

// showAttempts prepares attempts, the oldest first. Details go with the chosen one and with as
// many of the newest as fit; the others are a link away.
func showAttempts(attempts []client.Attempt, chosen, page string, payload *body) []*attemptView {
	views := make([]*attemptView, len(attempts))
	budget := detailBudget
	for i, a := range slices.Backward(attempts) {
		view := &attemptView{Attempt: a, ID: "attempt-" + strconv.Itoa(a.N), Bars: phases(a)}
		view.Tone, view.Icon, view.Result = verdict(a)
		last := i == len(attempts)-1
		view.Open = chosen == strconv.Itoa(a.N) || chosen == "" && last
		view.Details = view.Open || budget > 0
		view.URL = withQuery(page, url.Values{"attempt": {strconv.Itoa(a.N)}}) + "#" + view.ID
		views[i] = view
		if !view.Details {
			continue
		}
		view.Sent = sent(a.Request.Headers)
		view.answered()
		if view.Open {
			view.Payload = payload
			if curlable(payload) {
				view.Curl = curl(a.URL, a.Request.Headers, payload.Raw)
			}
		}
		budget -= view.weight()
	}
	return views
}

// answered fills in what the server said, or why there is nothing.
func (view *attemptView) answered() {
	a := view.Attempt
	switch r := a.Response; {
	case r == nil:
		view.Why = sentence(a.Message)
	case r.Hidden:
		view.Why = "This address is on a private network, so what it answered is shown to the operator alone."
	default:
		for name, value := range r.Headers {
			line := headerLine{Name: name, Value: value}
			if name == "date" {
				line.Note = skewNote(value, a.At.Add(time.Duration(a.DurationMS*float64(time.Millisecond))))
			}
			view.Answer = append(view.Answer, line)
		}
		slices.SortFunc(view.Answer, func(x, y headerLine) int { return strings.Compare(x.Name, y.Name) })
		raw := r.BodyBase64
		if r.Body != nil {
			raw = []byte(*r.Body)
		}
		view.Body = showBytes(raw, 16<<10)
		view.Body.Cut = view.Body.Cut || r.Truncated
	}
}

// weight is about how many bytes the details take.
func (view *attemptView) weight() int {
	n := 1500
	for _, lines := range [][]headerLine{view.Sent, view.Answer} {
		for _, h := range lines {
			n += len(h.Name) + len(h.Value) + 30
		}
	}
	if view.Body != nil {
		n += len(view.Body.Text)
	}
	return n
}

// verdict is how an attempt ended.
func verdict(a client.Attempt) (tone, icon, result string) {
	result, _ = faultParts(a.Message)
	if a.StatusCode != 0 {
		result = strings.TrimSpace(strconv.Itoa(a.StatusCode) + " " + http.StatusText(a.StatusCode))
	}
	switch a.Outcome {
	case "delivered":
		return "ok", "ok", result
	case "permanent":
		return "bad", "bad", result
	}
	return "warn", "retry", result
}

// phases says where an attempt's time went. The API's first_byte_ms counts from the start.
func phases(a client.Attempt) []phase {
	total := a.DurationMS
	if total <= 0 {
		return nil
	}
	t := a.Timing
	waiting := t.FirstByte - t.DNS - t.Connect - t.TLS
	name := "first byte"
	if t.FirstByte == 0 {
		waiting, name = total-t.DNS-t.Connect-t.TLS, "no answer came"
	}
	parts := []phase{
		{Class: "f0", Name: "DNS", MS: t.DNS}, {Class: "f1", Name: "connect", MS: t.Connect}, {Class: "f2", Name: "TLS", MS: t.TLS},
		{Class: "f3", Name: name, MS: max(0, waiting)},
	}
	if t.FirstByte > 0 {
		parts = append(parts, phase{Class: "f4", Name: "rest", MS: max(0, total-t.FirstByte)})
	}
	at := 0.0
	parts = slices.DeleteFunc(parts, func(p phase) bool { return p.MS <= 0 })
	for i := range parts {
		width := min(100-at, parts[i].MS/total*100)
		parts[i].X, parts[i].Width = fmt.Sprintf("%.2f%%", at), fmt.Sprintf("%.2f%%", width)
		at += width
	}
	return parts
}

// order of the headers people look for first.
var headerOrder = []string{"webhook-id", "webhook-timestamp", "webhook-signature"}

func sent(headers map[string]string) []headerLine {
	var lines []headerLine
	for name, value := range headers {
		lines = append(lines, headerLine{Name: name, Value: value})
	}
	rank := func(name string) int {
		if i := slices.Index(headerOrder, name); i >= 0 {
			return i
		}
		if strings.HasPrefix(name, "waybill-") {
			return len(headerOrder)
		}
		return len(headerOrder) + 1
	}
	slices.SortFunc(lines, func(x, y headerLine) int {
		if d := rank(x.Name) - rank(y.Name); d != 0 {
			return d
		}
		return strings.Compare(x.Name, y.Name)
	})
	return lines
}

// oddSkew is from where on a server's clock is worth a word; most verifiers allow five minutes.
const oddSkew = time.Minute

// skew is how far a server's clock is ahead by its own date header; 0 where it says nothing odd.
func skew(date string, then time.Time) time.Duration {
	t, err := http.ParseTime(date)
	if err != nil {
		return 0
	}
	// The header has whole seconds.
	if d := t.Sub(then.Truncate(time.Second)); d >= oddSkew || d <= -oddSkew {
		return d
	}
	return 0
}

func skewNote(date string, then time.Time) string {
	switch d := skew(date, then); {
	case d > 0:
		return spell(d) + " ahead of our clock when it came"
	case d < 0:
		return spell(-d) + " behind our clock when it came"
	}
	return ""
}

// curlMost is the largest body that is written on a command line.
const curlMost = 8 << 10

// curlable reports whether a body can be written on a command line.
func curlable(payload *body) bool {
	return payload != nil && payload.Plain && payload.Bytes <= curlMost && !strings.ContainsRune(string(payload.Raw), 0)
}

// curl is the command that sends bytes with headers. Headers whose values are kept secret are left
// for the reader to fill in.
func curl(to string, headers map[string]string, raw []byte) string {
	var b strings.Builder
	b.WriteString("curl -sS -X POST " + shellQuote(to))
	for _, h := range sent(headers) {
		switch h.Name {
		case "content-length", "host", "accept-encoding":
			continue
		}
		b.WriteString(" \\\n  -H " + shellQuote(h.Name+": "+h.Value))
	}
	b.WriteString(" \\\n  --data-binary " + shellQuote(string(raw)))
	return b.String()
}

// shellQuote makes one word of any text for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
