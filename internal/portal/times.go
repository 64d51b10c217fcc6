package portal

import (
	"fmt"
	"html/template"
	"math"
	"regexp"
	"strings"
	"time"
)

// shapes are the ways a time is written, by what a page calls them.
var shapes = map[string]string{
	"h":   "15:04",
	"c":   "15:04:05",
	"s":   "2 Jan 15:04:05",
	"sms": "2 Jan 15:04:05.000",
	"m":   "2 Jan 15:04",
	"y":   "2 Jan 2006 15:04",
	"d":   "2 Jan 2006",
}

const exact = "2006-01-02T15:04:05.000Z"

// at writes a time in UTC, with the exact one in its title. inZone rewrites it for who asked for
// local time.
func at(t any, shape string) template.HTML {
	moment := momentOf(t)
	if moment.IsZero() {
		return ""
	}
	utc := moment.UTC()
	stamp := utc.Format(exact)
	return template.HTML(`<time datetime="` + stamp + `" data-f="` + shape + `" title="` + stamp + `">` + utc.Format(shapes[shape]) + `</time>`)
}

func momentOf(t any) time.Time {
	switch t := t.(type) {
	case time.Time:
		return t
	case *time.Time:
		if t != nil {
			return *t
		}
	}
	return time.Time{}
}

var writtenTime = regexp.MustCompile(`<time datetime="([^"]*)" data-f="([a-z]+)" title="[^"]*">[^<]*</time>|<span data-tz-name>UTC</span>`)

// inZone rewrites the times of a finished page. They are ours alone: whatever a stranger wrote is
// escaped by now and holds no tag.
func inZone(page []byte, zone *time.Location, now time.Time) []byte {
	return writtenTime.ReplaceAllFunc(page, func(found []byte) []byte {
		part := writtenTime.FindSubmatch(found)
		if part[1] == nil {
			return []byte("<span data-tz-name>" + zoneName(now, zone) + "</span>")
		}
		moment, err := time.Parse(exact, string(part[1]))
		if err != nil {
			return found
		}
		local := moment.In(zone)
		return fmt.Appendf(nil, `<time datetime="%s" data-f="%s" title="%s %s (%s)">%s</time>`,
			part[1], part[2], local.Format("2 Jan 2006 15:04:05.000"), zoneName(moment, zone), part[1], local.Format(shapes[string(part[2])]))
	})
}

// zoneName is a zone's offset as people write it: UTC+5:30.
func zoneName(t time.Time, zone *time.Location) string {
	_, offset := t.In(zone).Zone()
	sign := "+"
	if offset < 0 {
		sign, offset = "−", -offset
	}
	name := fmt.Sprintf("UTC%s%d", sign, offset/3600)
	if minutes := offset % 3600 / 60; minutes != 0 {
		name += fmt.Sprintf(":%02d", minutes)
	}
	return name
}

// near writes a time close to now in words, the exact one in its title: in 2 min 10 s.
func near(t any, now time.Time) template.HTML {
	moment := momentOf(t)
	if moment.IsZero() {
		return ""
	}
	stamp := moment.UTC().Format(exact)
	words := "now"
	switch d := moment.Sub(now); {
	case d >= time.Second:
		words = "in " + spell(d)
	case d <= -time.Second:
		words = spell(-d) + " ago"
	}
	return template.HTML(`<time datetime="` + stamp + `" title="` + stamp + `">` + words + `</time>`)
}

// spell writes a duration with its two largest units: 9 h 51 min, 1.6 s, 143 ms.
func spell(d time.Duration) string {
	part := func(n time.Duration, unit string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf(" %d %s", n, unit)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 10*time.Second && d%time.Second >= 50*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(math.Round(d.Seconds())))
	case d < time.Hour:
		d = d.Round(time.Second)
		return strings.TrimSpace(part(d/time.Minute, "min") + part(d%time.Minute/time.Second, "s"))
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		return strings.TrimSpace(part(d/time.Hour, "h") + part(d%time.Hour/time.Minute, "min"))
	}
	d = d.Round(time.Hour)
	return strings.TrimSpace(part(d/(24*time.Hour), "d") + part(d%(24*time.Hour)/time.Hour, "h"))
}

// milliseconds writes the API's duration_ms.
func milliseconds(ms float64) string {
	switch {
	case ms < 1:
		return "< 1 ms"
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
