package portal

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// chart is a picture of figures over time, and the same figures as a table. At most two lines.
type chart struct {
	ID, Title string
	Finding   string // what the picture shows, for those who do not see it
	Lines     []chartLine
	Grid      []chartMark // horizontal, with their figures
	Ticks     []chartMark // along the time
	Width     int         // of the stretched part: one unit a step
	Unit      string      // what a row of the table is about
	Shape     string      // how its time is written
	Rows      []chartRow
}

type chartLine struct {
	Name, Tone string
	Area       bool
	Path       template.HTMLAttr // d of the path
}

type chartMark struct {
	At    string
	Text  string
	Place string // text-anchor
}

type chartRow struct {
	At     time.Time
	Values []string
}

// series is one line's values; NaN where there is none.
type series struct {
	Name, Tone string
	Area       bool
	Of         func(client.Bucket) float64
}

const chartHeight = 96.0

// draw makes a chart. say writes a value, floor is where the axis begins (a cut axis says so by
// its marks).
func draw(id, title string, stats client.Stats, floor float64, say func(float64) string, lines ...series) chart {
	c := chart{ID: id, Title: title, Width: max(len(stats.Data)-1, 1), Unit: "Minute", Shape: "m"}
	switch {
	case stats.BucketSeconds >= 86400:
		c.Unit, c.Shape = "Day", "d"
	case stats.BucketSeconds >= 3600:
		c.Unit, c.Shape = "Hour", "m"
	}
	top := floor
	for _, l := range lines {
		for _, b := range stats.Data {
			if value := l.Of(b); !math.IsNaN(value) {
				top = max(top, value)
			}
		}
	}
	least, most := math.Inf(1), math.Inf(-1)
	top = roundUp(top, floor)
	y := func(value float64) float64 { return chartHeight - (value-floor)/(top-floor)*chartHeight }
	for i, l := range lines {
		var d strings.Builder
		pen, start := false, 0
		shut := func(end int) {
			if pen && start == end { // one alone would be a line without length
				d.WriteString("m-.3 0h.6")
			}
			if pen && l.Area {
				fmt.Fprintf(&d, " L%d %g L%d %gz", end, chartHeight, start, chartHeight)
			}
			pen = false
		}
		for x, b := range stats.Data {
			value := l.Of(b)
			if math.IsNaN(value) {
				shut(x - 1)
				continue
			}
			if i == 0 {
				least, most = min(least, value), max(most, value)
			}
			step := "L"
			if !pen {
				step, start = "M", x
			}
			fmt.Fprintf(&d, "%s%d %.1f", step, x, max(min(y(value), chartHeight), 0))
			pen = true
		}
		shut(len(stats.Data) - 1)
		c.Lines = append(c.Lines, chartLine{Name: l.Name, Tone: l.Tone, Area: l.Area, Path: template.HTMLAttr(`d="` + d.String() + `"`)})
	}
	for _, part := range []float64{1, 0.5, 0} {
		value := floor + part*(top-floor)
		text := say(value)
		if part == 0 && floor == 0 {
			text = "" // the line itself says that it is nothing
		}
		c.Grid = append(c.Grid, chartMark{At: strconv.FormatFloat(8.5+(1-part)*chartHeight, 'g', -1, 64), Text: text})
	}
	c.Finding = "nothing in this time"
	if most >= least {
		c.Finding = fmt.Sprintf("%s between %s and %s", lines[0].Name, say(least), say(most))
	}
	for i := range stats.Data {
		b := stats.Data[len(stats.Data)-1-i] // the newest first
		row := chartRow{At: b.At}
		for _, l := range lines {
			text := ""
			if value := l.Of(b); !math.IsNaN(value) {
				text = say(value)
			}
			row.Values = append(row.Values, text)
		}
		c.Rows = append(c.Rows, row)
	}
	if len(c.Rows) > maxChartRows {
		c.Rows = c.Rows[:maxChartRows]
	}
	return c
}

// maxChartRows keeps the table of a chart within what a page may weigh.
const maxChartRows = 60

// roundUp is a figure at or above value that reads well at the top of an axis.
func roundUp(value, floor float64) float64 {
	reach := value - floor
	if reach <= 0 {
		return floor + 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(reach)))
	for _, step := range []float64{1, 2, 3, 4, 5, 6, 8, 10} {
		if reach <= step*unit*1.0001 {
			return floor + step*unit
		}
	}
	return value
}

// bars are an endpoint's day: one bar an hour, of how its attempts went.
type bars struct {
	Label string
	Hours []bar
}

type bar struct {
	X    int
	Tone string
}

func dayOf(day []client.Bucket) bars {
	b := bars{}
	good, bad := int64(0), int64(0)
	for i, hour := range day {
		tone := ""
		switch failed := hour.Attempts.Transient + hour.Attempts.Permanent; {
		case hour.Attempts.Total == 0:
			tone = "k-none"
		case failed == 0:
			tone = "k-ok"
		case failed*2 > hour.Attempts.Total:
			tone = "k-bad"
		default:
			tone = "k-warn"
		}
		good, bad = good+hour.Attempts.Delivered, bad+hour.Attempts.Transient+hour.Attempts.Permanent
		b.Hours = append(b.Hours, bar{X: i * 4, Tone: tone})
	}
	b.Label = fmt.Sprintf("Last 24 hours: %s answered 2xx, %s failed", grouped(int(good)), grouped(int(bad)))
	return b
}

// dayPicture is an endpoint's last 24 hours on its own page: a bar an hour, as high as the part of
// its attempts that was answered 2xx, on one of what failed.
type dayPicture struct {
	Hours  []hourBar
	Ticks  []chartMark
	Label  string // what the picture shows, for those who do not see it
	Rate   string // of the whole day
	Median string // half of the attempts took no longer; "–" where there was none
	Slow   string // nor 95 of a hundred longer than this
	Total  int64
}

// hourBar is one of them. Its measures are those of the picture: x and width in percent, the rest
// in pixels.
type hourBar struct {
	At        time.Time
	X         string
	Good, Bad float64 // how high what went well is, and what failed on top of it
	Delivered int64
	Failed    int64
	Rate      string
}

// dayHeight is how high a bar is, and dayTop where it begins.
const (
	dayHeight = 36.0
	dayTop    = 4.0
)

// Top is where the part that went well begins.
func (h hourBar) Top() float64 { return dayTop + h.Bad }

func pictureOf(stats client.Stats) dayPicture {
	t := &stats.Totals
	p := dayPicture{
		Rate: percent(t.SuccessRate), Total: t.Attempts.Total, Median: "–", Slow: "–",
		Label: "Attempts by hour for 24 hours: none",
	}
	if q := t.AttemptMS; q.P50 != nil && q.P95 != nil {
		p.Median, p.Slow = milliseconds(*q.P50), milliseconds(*q.P95)
	}
	worst := -1
	for i, b := range stats.Data {
		h := hourBar{At: b.At, X: fmt.Sprintf("%.2f%%", 100*float64(i)/float64(max(len(stats.Data), 1))), Delivered: b.Attempts.Delivered,
			Failed: b.Attempts.Transient + b.Attempts.Permanent, Rate: percent(b.SuccessRate)}
		if total := h.Delivered + h.Failed; total > 0 {
			h.Good = dayHeight * float64(h.Delivered) / float64(total)
			if h.Failed > 0 {
				h.Good = min(h.Good, dayHeight-2) // one that failed is seen
			}
			h.Bad = dayHeight - h.Good
			if h.Failed > 0 && (worst < 0 || *b.SuccessRate < *stats.Data[worst].SuccessRate) {
				worst = i
			}
		}
		p.Hours = append(p.Hours, h)
		if i%6 == 0 {
			place := "middle"
			if i == 0 {
				place = "start"
			}
			p.Ticks = append(p.Ticks, chartMark{At: h.X, Text: b.At.UTC().Format("15:04"), Place: place})
		}
	}
	p.Ticks = append(p.Ticks, chartMark{At: "100%", Text: "now", Place: "end"})
	switch {
	case p.Total > 0 && worst < 0:
		p.Label = fmt.Sprintf("Attempts by hour for 24 hours: all %s answered 2xx", grouped(p.Total))
	case p.Total > 0:
		b := stats.Data[worst]
		p.Label = fmt.Sprintf("Attempts by hour for 24 hours: %s answered 2xx; the worst hour began at %s UTC, with %s", p.Rate, b.At.UTC().Format("15:04"), percent(b.SuccessRate))
	}
	return p
}
