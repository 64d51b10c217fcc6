package portal

import (
	"net/url"
	"os/exec"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/client"
)

func TestFaultParts_splitsWhatHappenedFromWhatToDo(t *testing.T) {
	what, todo := faultParts("Your server answered 404 Not Found: nothing takes webhooks at this URL; correct the URL or deploy the handler, then replay.")
	if what != "Your server answered 404 Not Found: nothing takes webhooks at this URL" || todo != "correct the URL or deploy the handler, then replay" {
		t.Errorf("%q, %q", what, todo)
	}
}

func TestPhases_addUpToTheAttempt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.Float64Range(0, 3000)
		dns, connect, tls, wait, rest := part.Draw(t, "dns"), part.Draw(t, "connect"), part.Draw(t, "tls"), part.Draw(t, "wait"), part.Draw(t, "rest")
		total := dns + connect + tls + wait + rest
		sum := 0.0
		for _, p := range phases(client.Attempt{DurationMS: total, Timing: client.Timing{DNS: dns, Connect: connect, TLS: tls, FirstByte: dns + connect + tls + wait}}) {
			sum += p.MS
		}
		if diff := sum - total; diff > 1e-6 || diff < -1e-6 {
			t.Fatalf("the parts of %v ms are %v ms", total, sum)
		}
	})
}

func TestShellQuote_isOneWordToAShell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("a'\"\\$`!*? \n\t;&|<>(){}#~éש"))).Draw(t, "word")
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+shellQuote(word)).Output()
		if err != nil || string(out) != word {
			t.Fatalf("a shell reads %q as %q (%v)", word, out, err)
		}
	})
}

func TestReadTime_readsFieldsInTheReadersZoneAndPastedOnesInTheirOwn(t *testing.T) {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ in, want string }{
		{"2026-11-30T08:12", "2026-11-30T02:42:00Z"},
		{"2026-11-30 08:12:31", "2026-11-30T02:42:31Z"},
		{"2026-11-30T08:12:00Z", "2026-11-30T08:12:00Z"},
		{" 2026-11-30T08:12:00+01:00 ", "2026-11-30T07:12:00Z"},
		{"2026-11-30", "2026-11-29T18:30:00Z"},
	} {
		got, err := readTime(row.in, kolkata)
		if err != nil || got.UTC().Format(time.RFC3339) != row.want {
			t.Errorf("%q is %v (%v), want %s", row.in, got.UTC(), err, row.want)
		}
	}
	for _, in := range []string{"", "yesterday", "30.11.2026", "2026-13-01"} {
		if _, err := readTime(in, nil); err == nil {
			t.Errorf("%q passes for a time", in)
		}
	}
}

func TestShortFilter_keepsWhatSaysSomething(t *testing.T) {
	for _, row := range []struct {
		in, want string
		short    bool
	}{
		{"state=dead", "state=dead", true},
		{"", "", true},
		{"state=&endpoint_id=ep_1", "endpoint_id=ep_1", false},
		{"state=dead&state=pending", "state=pending", false},
		{"endpoint_id[]=ep_1&unknown=1", "", true},
	} {
		in, err := url.ParseQuery(row.in)
		if err != nil {
			t.Fatal(err)
		}
		got, short := shortFilter(in, filterNames)
		if got.Encode() != row.want || short != row.short {
			t.Errorf("%q: %q, short %v; want %q, %v", row.in, got.Encode(), short, row.want, row.short)
		}
	}
}

// However hostile the bytes, what is shown of them stays within its budget.
func TestShowBytes_staysWithinItsBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 0, 4000).Draw(t, "bytes")
		const budget = 2000
		b := showBytes(raw, budget)
		if n := len(plain(b.Text)); n > budget {
			t.Fatalf("%d bytes of markup for a budget of %d", n, budget)
		}
		if !b.Cut && b.Text != string(raw) {
			t.Fatal("not all is shown, and nothing says so")
		}
	})
}

func TestSkew_isOddFromAMinuteOn(t *testing.T) {
	then := time.Date(2026, 11, 30, 7, 58, 31, 745e6, time.UTC)
	for date, want := range map[string]time.Duration{
		"Mon, 30 Nov 2026 08:05:43 GMT": 7*time.Minute + 12*time.Second,
		"Mon, 30 Nov 2026 07:58:32 GMT": 0,
		"Mon, 30 Nov 2026 07:50:00 GMT": -(8*time.Minute + 31*time.Second),
		"nonsense":                      0,
	} {
		if got := skew(date, then); got != want {
			t.Errorf("%s: %v, want %v", date, got, want)
		}
	}
}

func TestPictureOf_aBarIsAsHighAsItsPart(t *testing.T) {
	began := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	rate := func(f float64) *float64 { return &f }
	stats := client.Stats{Data: make([]client.Bucket, 24)}
	for i := range stats.Data {
		stats.Data[i].At = began.Add(time.Duration(i) * time.Hour)
	}
	hour := func(i int, good, bad int64, r float64) {
		b := &stats.Data[i]
		b.Attempts.Delivered, b.Attempts.Transient, b.Attempts.Total, b.SuccessRate = good, bad, good+bad, rate(r)
	}
	hour(0, 10, 0, 1)
	hour(1, 1, 1, 0.5)
	hour(2, 0, 7, 0)
	hour(3, 9999, 1, 0.9999)
	stats.Totals.Attempts.Total, stats.Totals.SuccessRate = 10019, rate(10010.0/10019)
	p := pictureOf(stats)
	for i, want := range []struct{ good, bad float64 }{{36, 0}, {18, 18}, {0, 36}, {34, 2}, {0, 0}} {
		if h := p.Hours[i]; h.Good != want.good || h.Bad != want.bad || h.Top() != 4+want.bad {
			t.Errorf("hour %d: %+v, want %+v", i, h, want)
		}
	}
	if want := "Attempts by hour for 24 hours: 99.91 % answered 2xx; the worst hour began at 11:00 UTC, with 0.00 %"; p.Label != want {
		t.Errorf("label %q, want %q", p.Label, want)
	}
	if none := pictureOf(client.Stats{Data: make([]client.Bucket, 24)}); none.Label != "Attempts by hour for 24 hours: none" || none.Rate != "–" || none.Median != "–" {
		t.Errorf("nothing: %+v", none)
	}
}
