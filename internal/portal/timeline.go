package portal

import (
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// step is one line of a delivery's history: a mark at a moment, a gap between two, or an attempt.
type step struct {
	Mark    bool
	Tone    string
	Icon    string // "": none
	At      time.Time
	Strong  string
	Text    string
	Attempt *attemptView
}

// longWait is from where on a wait is more than a step of the schedule, and is explained.
const longWait = 2 * time.Hour

// timeline tells what happened, in order. cut: attempts before the first one shown are left out.
func timeline(d client.Delivery, attempts []*attemptView, cut bool) []step {
	var steps []step
	if !cut {
		steps = append(steps, step{Mark: true, Icon: "inbox", At: d.CreatedAt, Text: "Event accepted"})
	}
	ended := d.CreatedAt
	for i, a := range attempts {
		if i > 0 || !cut {
			steps = append(steps, gap(a, attempts, i, ended)...)
		}
		steps = append(steps, step{Tone: a.Tone, Icon: a.Icon, Attempt: a})
		ended = a.At.Add(time.Duration(a.DurationMS * float64(time.Millisecond)))
	}
	return append(steps, ending(d, len(attempts))...)
}

// gap says how long it was between two attempts, and why where the attempts tell.
func gap(a *attemptView, attempts []*attemptView, i int, ended time.Time) []step {
	waited := a.At.Sub(ended)
	if a.Trigger == "replay" {
		return []step{{Text: "replayed after " + spell(max(0, waited)) + ", signed afresh"}}
	}
	if waited < time.Second {
		return nil
	}
	s := step{Text: "waited " + spell(waited)}
	if i > 0 {
		if after := retryAfter(attempts[i-1]); after != "" {
			s.Text += ": your server asked us to wait (retry-after: " + after + ")"
		} else if waited < longWait {
			s.Text += ", then retry " + strconv.Itoa(i)
		}
	}
	if waited >= longWait {
		s.Icon, s.Tone, s.Strong, s.Text = "pause", "wait", "waited "+spell(waited)+".", "Nothing was tried meanwhile, and no attempt was counted for it."
	}
	if a.Trigger == "probe" {
		s.Text += " It was then tried as a probe."
	}
	return []step{s}
}

func retryAfter(a *attemptView) string {
	if a.Response == nil || a.Outcome == "delivered" {
		return ""
	}
	return a.Response.Headers["retry-after"]
}

// ending is what stands below the last attempt.
func ending(d client.Delivery, shown int) []step {
	switch d.State {
	case "delivered":
		if d.FinishedAt != nil {
			return []step{{Mark: true, Tone: "ok", Icon: "end", At: *d.FinishedAt, Text: "Delivered"}}
		}
	case "dead", "cancelled":
		s := step{Mark: true, Tone: "bad", Icon: "end", Text: "Failed for good" + endReason(d)}
		if d.State == "cancelled" {
			s.Tone, s.Text = "mute", "Cancelled: nobody needs to act on it"
		}
		if d.Dead != nil {
			s.At = d.Dead.At
		}
		return []step{s}
	}
	w := d.Waiting
	if w == nil {
		return nil
	}
	var steps []step
	if w.Ahead != nil && *w.Ahead > 0 {
		steps = append(steps, step{Text: "in line behind " + capped(*w.Ahead, w.Capped) + " others"})
	}
	if at := firstTime(w.ETA, w.Until); at != nil {
		what := "Attempt " + strconv.Itoa(d.AttemptCount+1) + ", expected"
		if w.Reason == "breaker" {
			what = "The next probe, which may be another delivery's"
		}
		steps = append(steps, step{Mark: true, Icon: "clock", At: *at, Text: what})
	}
	return steps
}

func endReason(d client.Delivery) string {
	if d.Dead == nil {
		return ""
	}
	switch d.Dead.Reason {
	case "permanent":
		if d.LastAttempt != nil && d.LastAttempt.StatusCode != 0 {
			return ": " + strconv.Itoa(d.LastAttempt.StatusCode) + " is a final answer"
		}
		return ": another try would end the same way"
	case "exhausted":
		return ": no success within the retry window"
	case "expired":
		return ": it waited longer than waiting deliveries are kept"
	case "poison":
		return ": we failed while handling it"
	}
	return ""
}

func firstTime(times ...*time.Time) *time.Time {
	for _, t := range times {
		if t != nil {
			return t
		}
	}
	return nil
}
