package inboundmail

import (
	"context"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// Panel shows what became of the mail since the start. A count of unprotected runs that nobody sees
// might as well not be counted.
type Panel struct {
	mu     sync.Mutex
	counts Counts
}

// Counts are the numbers on the panel.
type Counts struct {
	Forwarded, Repeats, Failed, Rejected int
	Degraded                             int       // runs without the protection of Redis
	DegradedAt                           time.Time // of the last one
}

// Counts are the numbers now.
func (p *Panel) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Panel) observe(_ context.Context, o receive.Observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case o.Step == receive.StepRun && o.Outcome == receive.Degraded:
		p.counts.Degraded++
		p.counts.DegradedAt = time.Now()
	case o.Step == receive.StepRun && o.Outcome == receive.Processed:
		p.counts.Forwarded++
	case o.Step == receive.StepRun && o.Outcome == receive.Failed:
		p.counts.Failed++
	case o.Step == receive.StepRequest && o.Outcome == receive.Duplicate:
		p.counts.Repeats++
	case o.Step == receive.StepRequest && o.Outcome == receive.Rejected:
		p.counts.Rejected++
	}
}

var page = template.Must(template.New("panel").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>Support mail</title>
<style>body{font:16px/1.5 system-ui;max-width:40rem;margin:2rem auto}td{padding:.2rem 1rem .2rem 0}.bad{color:#b00020;font-weight:600}</style>
<h1>Support mail</h1>
<table>
<tr><td>Forwarded<td>{{.Forwarded}}
<tr><td>Repeats that were not<td>{{.Repeats}}
<tr><td>Failed, and tried again<td>{{.Failed}}
<tr><td>Did not verify<td>{{.Rejected}}
<tr{{if .Degraded}} class="bad"{{end}}><td>Unprotected runs<td>{{.Degraded}}{{if .Degraded}}, the last at {{.DegradedAt.Format "15:04:05"}}: Redis was away, and a mail may have gone out twice{{end}}
</table></html>
`))

// ServeHTTP shows the panel.
func (p *Panel) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, p.Counts()) // whoever looked is gone
}
