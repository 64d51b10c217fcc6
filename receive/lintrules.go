package receive

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// never are the rules that Waive cannot break: nothing good can come of it.
var never = []Rule{Secretless, NeedsURL, Incomplete}

// Lint says what NewInbox would, without asking the store.
func (c InboxConfig) Lint() []Problem {
	c = c.withDefaults()
	_, problems := newIntake(c.Source, time.Now())
	return append(problems, c.lint()...)
}

// Lint says what NewSync would, without asking the store.
func (c SyncConfig) Lint() []Problem {
	c = c.withDefaults()
	_, problems := newIntake(c.Source, time.Now())
	return append(problems, c.lint()...)
}

func (c InboxConfig) lint() []Problem {
	l := linter{p: &c.Source.Provider}
	l.incomplete(c.Store == nil, "there is no Store", "set it to pgstore.New or sqlstore.New")
	l.incomplete(c.Handler == nil, "there is no Handler", "set it")
	l.incomplete(c.Deadline < 0 || c.Grace < 0 || c.Retain < 0 || c.StoreBudget < 0 || c.Workers < 0 || c.Poll < 0, "a duration or a number is negative", "leave it at zero for the default")
	l.source(&c.Source, c.Retain)
	l.codes(c.Source.Provider.Codes.withDefaults(), false)
	if !l.p.retries() && c.Fallback == nil {
		l.add(NoRetries, Told, l.p.Name+" tries once, so an event that comes while the database is down is lost", "set Fallback to a local sqlstore.SQLite")
	}
	return l.problems
}

func (c SyncConfig) lint() []Problem {
	l := linter{p: &c.Source.Provider}
	l.incomplete(c.Store == nil, "there is no Store", "set it to redisstore.New, pgstore.New or sqlstore.New")
	l.incomplete(c.Handler == nil, "there is no Handler", "set it")
	l.incomplete(c.Deadline < 0 || c.Grace < 0 || c.Retain < 0 || c.StoreBudget < 0, "a duration is negative", "leave it at zero for the default")
	l.source(&c.Source, c.Retain)
	l.codes(c.Source.Provider.Codes.withDefaults(), true)
	l.schedule(c.Deadline, c.Grace, c.StoreBudget)
	guessed := ""
	if c.Source.Provider.Timeout == 0 || c.Source.Provider.Guessed {
		guessed = " (a guess, it is not published)"
	}
	if t := c.timeout(); c.Deadline+2*c.StoreBudget >= t {
		l.add(DeadlineTooLong, Delays,
			fmt.Sprintf("%s hangs up after %s%s, before a run of %s and two answers of the store of up to %s", l.p.Name, t, guessed, c.Deadline, c.StoreBudget),
			fmt.Sprintf("set Deadline below %s, or use an Inbox", t-2*c.StoreBudget))
	}
	if c.DeadLetters == nil {
		l.add(NoDeadLetters, Told, "there is nowhere to write a dead letter, so a permanent error is answered like any other and tried again", "set DeadLetters, or use a store that keeps them")
	}
	return l.problems
}

// linter collects what is wrong.
type linter struct {
	p        *Provider
	problems []Problem
}

func (l *linter) add(rule Rule, harm Harm, detail, remedy string) {
	l.problems = append(l.problems, Problem{rule, harm, detail, remedy})
}

func (l *linter) incomplete(wrong bool, detail, remedy string) {
	if wrong {
		l.add(Incomplete, Loses, detail, remedy)
	}
}

// source checks what Inbox and Sync have in common.
func (l *linter) source(src *Source, retain time.Duration) {
	p := l.p
	if src.MaxBody < 0 {
		l.incomplete(true, "MaxBody is negative", "leave it at zero for the default")
	} else if src.MaxBody > 0 && src.MaxBody < p.MaxBody {
		l.add(BodyLimit, Loses, fmt.Sprintf("MaxBody is %d bytes, and %s sends up to %d", src.MaxBody, p.Name, p.MaxBody), "raise MaxBody, or leave it at zero")
	}
	if h := p.horizon(); retain < h {
		l.add(ShortMemory, Repeats, fmt.Sprintf("done events are remembered for %s, and %s tries for %s", retain, p.Name, h), fmt.Sprintf("set Retain to %s or more, or leave it at zero", p.memory()))
	} else if retain < h+p.Manual {
		l.add(ShortMemory, Told, fmt.Sprintf("done events are remembered for %s, and people can resend for %s", retain, h+p.Manual), fmt.Sprintf("set Retain to %s or more, or leave it at zero", p.memory()))
	}
	switch {
	case identifies(p.Scheme) || p.ID.Pointer != "" || p.Identify != nil:
	case p.ID.Header != "":
		l.add(UnsignedID, Told, fmt.Sprintf("the signature does not cover %s; the body's digest is in the key, so a repeat with another body is another event", p.ID.Header), "nothing; a body that is replayed under another id is run, so let the handler be able to stand it")
	case src.BodyIsID == 0:
		l.add(NoID, Repeats, p.Name+" gives its events no id, so a repeat cannot be told from a new event", "set BodyIsID to a time within which equal bytes are one event, or waive the rule")
	}
}

// identifies reports whether the scheme verifies an id of its own.
func identifies(s signature.Scheme) bool {
	switch s := s.(type) {
	case signature.StandardWebhooks, signature.MailgunToken:
		return true
	case signature.HMAC:
		return s.IDHeader != ""
	case signature.AnyOf:
		return len(s) > 0 && !slices.ContainsFunc(s, func(s signature.Scheme) bool { return !identifies(s) })
	}
	return false
}

// codes checks that no answer ends the provider's retries which should not.
func (l *linter) codes(c Codes, inFlight bool) {
	if !l.p.retries() {
		return
	}
	type named struct {
		name string
		code int
	}
	stops := []named{{"Failed", c.Failed}, {"TooLarge", c.TooLarge}}
	if inFlight {
		stops = append(stops, named{"InFlight", c.InFlight})
	}
	for _, n := range stops {
		if l.p.stopsOn(n.code) {
			l.add(StopCode, Loses, fmt.Sprintf("%s does not try again after %d, which Codes.%s answers", l.p.Name, n.code, n.name), fmt.Sprintf("set Codes.%s to a code after which it does", n.name))
		}
	}
	if l.p.stopsOn(c.Rejected) {
		l.add(RejectStops, Loses, fmt.Sprintf("%s does not try again after %d, which Codes.Rejected answers; an event signed with a secret that is not deployed yet is lost", l.p.Name, c.Rejected), "set Codes.Rejected to a code after which it does")
	}
}

// schedule checks that somebody comes back after a run that died.
func (l *linter) schedule(deadline, grace, budget time.Duration) {
	if !l.p.retries() {
		l.add(NoRetries, Loses, l.p.Name+" tries once, so an event whose run dies is lost", "use an Inbox")
		return
	}
	lost, spends := Fate{CrashAt: -1}, Fate{CrashAt: -1}
	for f := range simulate(*l.p, deadline, grace, budget) {
		if f.Lost && lost.CrashAt < 0 {
			lost = f
		}
		if !f.Lost && f.Spare == 0 && spends.CrashAt < 0 {
			spends = f
		}
	}
	lease := deadline + grace + budget
	switch {
	case lost.CrashAt >= 0:
		l.add(LeaseTooLong, Loses, fmt.Sprintf("if a run dies after %s, every attempt of %s falls within its lease of %s", lost.CrashAt, l.p.Name, lease), "shorten Deadline, or use an Inbox")
	case spends.CrashAt >= 0:
		l.add(SpendsLast, Delays, fmt.Sprintf("if a run dies after %s, only the last attempt of %s comes after its lease of %s", spends.CrashAt, l.p.Name, lease), "shorten Deadline, or use an Inbox")
	}
}

// stopsOn reports whether a code ends the provider's retries.
func (p *Provider) stopsOn(code int) bool {
	return slices.ContainsFunc(p.Stops, func(r CodeRange) bool { return r.From <= code && code <= r.To })
}

// retries reports whether the provider tries again by itself.
func (p *Provider) retries() bool { return len(p.Retries) > 0 || p.Horizon > 0 }

// horizon is from the first attempt to the last automatic one.
func (p *Provider) horizon() time.Duration {
	sum := time.Duration(0)
	for _, r := range p.Retries {
		sum += r + p.Timeout
	}
	return cmp.Or(p.Horizon, sum)
}

// leastMemory is how long a finished event is remembered at least.
const leastMemory = 7 * 24 * time.Hour

// memory is how long to remember what was done: as long as the provider, or people there, can send
// it again, and an hour for clocks and slow attempts.
func (p *Provider) memory() time.Duration {
	return max(leastMemory, p.horizon()+p.Manual+time.Hour)
}

func has(problems []Problem, r Rule) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Rule == r })
}

// checkStores asks each store that can what it is.
func checkStores(ctx context.Context, stores ...any) []Problem {
	var problems []Problem
	for i, s := range stores {
		c, ok := s.(Checker)
		if !ok {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		found, err := c.Check(limited)
		cancel()
		if err != nil {
			harm := Loses
			if i > 0 || len(stores) > 1 && stores[1] != nil {
				harm = Told
			}
			found = append(found, Problem{Unchecked, harm, fmt.Sprintf("the store did not answer: %v", err), "start when it does"})
		}
		problems = append(problems, found...)
	}
	return problems
}

// judgeProblems decides whether to start, and says in the log what is broken on purpose, what wastes
// attempts and what is worth knowing.
func judgeProblems(source string, problems []Problem, waive []Rule, logger *slog.Logger) error {
	var stop []Problem
	for _, p := range problems {
		waived := slices.Contains(waive, p.Rule) && !slices.Contains(never, p.Rule)
		switch {
		case p.Harm == Told:
			logger.Info("webhook source: "+p.Detail, "source", source, "rule", p.Rule)
		case p.Harm == Delays && !waived:
			logger.Warn("webhook source: "+p.Detail, "source", source, "rule", p.Rule, "harm", p.Harm.String(), "remedy", p.Remedy)
		case waived:
			logger.Warn("webhook source breaks a rule on purpose: "+p.Detail, "source", source, "rule", p.Rule, "harm", p.Harm.String())
		default:
			stop = append(stop, p)
		}
	}
	if len(stop) > 0 {
		return &ConfigError{source, stop}
	}
	return nil
}
