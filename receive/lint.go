package receive

import (
	"fmt"
	"strings"
)

// Harm is what a broken rule leads to.
type Harm int

const (
	Loses   Harm = iota + 1 // an event can be lost
	Repeats                 // an event can run twice where it need not
	Delays                  // attempts of the provider are wasted
	Told                    // worth knowing; never stops the start
)

// String names the harm.
func (h Harm) String() string {
	if h < Loses || h > Told {
		return "unknown"
	}
	return [...]string{"loses", "repeats", "delays", "note"}[h-1]
}

// Rule names one thing a configuration is checked for. Rules that lose or repeat stop the start
// unless waived.
type Rule string

const (
	NoRetries       Rule = "no-retries"        // Loses. Sync: the provider tries once. Inbox without Fallback: Told, it loses while the store is down
	LeaseTooLong    Rule = "lease-too-long"    // Loses. Sync: no automatic attempt comes after the lease of a first run
	StopCode        Rule = "stop-code"         // Loses. InFlight, Failed or TooLarge ends this provider's retries
	RejectStops     Rule = "reject-stops"      // Loses, while a new secret is not deployed yet. Rejected ends its retries
	BodyLimit       Rule = "body-limit"        // Loses. MaxBody is below what the provider sends
	NotDurable      Rule = "not-durable"       // Loses. The inbox's database does not wait for the disk
	Secretless      Rule = "secret"            // Anyone can send. Empty, short, unreadable or expired; never waivable
	NeedsURL        Rule = "public-url"        // Nothing verifies. The scheme signs the URL and none is set; never waivable
	Incomplete      Rule = "incomplete"        // Nothing works. A required field is missing, or a value makes no sense; never waivable
	ShortMemory     Rule = "short-memory"      // Repeats. Retain is below what the provider can resend
	Evicts          Rule = "evicts"            // Repeats. The store may forget: Redis with an eviction policy
	Forgets         Rule = "forgets"           // Repeats. memstore: one process, gone at restart
	UnsignedID      Rule = "unsigned-id"       // Told. The key takes the body's digest in; a replayed body with a new id runs
	NoID            Rule = "no-id"             // Repeats. No id, and BodyIsID is not set
	DeadlineTooLong Rule = "deadline-too-long" // Delays. Sync: the provider hangs up before the handler's deadline
	SpendsLast      Rule = "spends-last"       // Delays. Sync: fewer than two attempts come after the lease
	NoDeadLetters   Rule = "no-dead-letters"   // Told. Sync: a permanent error cannot be answered with success
	Unchecked       Rule = "unchecked"         // Told. The store did not answer, or may not say, how it is set up
)

// Problem is one broken rule in words.
type Problem struct {
	Rule   Rule
	Harm   Harm
	Detail string // what, with the numbers
	Remedy string // what to change
}

// String is the problem in one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s (%s): %s. %s.", p.Rule, p.Harm, p.Detail, p.Remedy)
}

// ConfigError is a configuration that does not start. Its text lists every problem with its remedy.
type ConfigError struct {
	Source   string
	Problems []Problem
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "receive: source %q does not start:", e.Source)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s", p)
	}
	return b.String()
}
