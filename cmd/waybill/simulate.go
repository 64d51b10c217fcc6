package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
)

func (sh *shell) simulate() *cobra.Command {
	var provider string
	var deadline, grace time.Duration
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Say what becomes of a provider's event whose handler dies, second by second",
		Long: `Say what becomes of an event whose handler dies at each second of its first run, if it is handled
inside the provider's request (receive.Sync). It walks the provider's published timeout and retries;
no server is asked. The exit code is 1 if an event can be lost.`,
		Example: `  waybill simulate --provider svix --deadline 12s`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := providerNamed(provider)
			if err != nil {
				return err
			}
			if deadline <= 0 || deadline > time.Hour || grace < 0 {
				return usagef("--deadline must be more than 0s and at most 1h, --grace not negative")
			}
			fates := slices.Collect(receive.Simulate(p, deadline, grace))
			if err := sh.printFates(p, deadline, grace, fates); err != nil {
				return err
			}
			if slices.ContainsFunc(fates, func(f receive.Fate) bool { return f.Lost }) {
				return errCheckFailed
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "who sends: "+strings.Join(providerNames(), ", "))
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "how long the handler may run")
	cmd.Flags().DurationVar(&grace, "grace", 2*time.Second, "how long it may need to notice that its time is over")
	return cmd
}

// fateJSON is a Fate as --json has it, in seconds.
type fateJSON struct {
	CrashAt  float64  `json:"crash_at"`
	RunsAt   *float64 `json:"runs_at,omitempty"`
	Attempts int      `json:"attempts"`
	Spare    int      `json:"spare"`
	Lost     bool     `json:"lost"`
}

func (sh *shell) printFates(p receive.Provider, deadline, grace time.Duration, fates []receive.Fate) error {
	if sh.json {
		all := make([]fateJSON, len(fates))
		for i, f := range fates {
			all[i] = fateJSON{CrashAt: f.CrashAt.Seconds(), Attempts: f.Attempts, Spare: f.Spare, Lost: f.Lost}
			if !f.Lost {
				all[i].RunsAt = new(f.RunsAt.Seconds())
			}
		}
		return sh.printJSON(map[string]any{"provider": p.Name, "deadline": deadline.String(), "fates": all})
	}
	fmt.Fprintf(sh.out, "%s%s; deadline %s, grace %s, lease %s\n\n", p.Name, schedule(p), deadline, grace, deadline+grace+250*time.Millisecond)
	var rows [][]string
	for i, f := range fates {
		// Seconds of one fate are one row.
		if i > 0 && sameFate(f, fates[i-1]) {
			rows[len(rows)-1][0] = strings.SplitN(rows[len(rows)-1][0], "–", 2)[0] + "–" + f.CrashAt.String()
			continue
		}
		runs, spare := f.RunsAt.String(), strconv.Itoa(f.Spare)
		if f.Lost {
			runs, spare = "never: LOST", ""
		}
		rows = append(rows, []string{f.CrashAt.String(), runs, strconv.Itoa(f.Attempts), spare})
	}
	return sh.table([]string{"DIES AT", "RUNS AT", "ATTEMPT", "ATTEMPTS LEFT"}, rows)
}

func sameFate(a, b receive.Fate) bool {
	return a.Lost == b.Lost && a.RunsAt == b.RunsAt && a.Attempts == b.Attempts
}

// schedule is a provider's patience in words.
func schedule(p receive.Provider) string {
	var b strings.Builder
	if p.Timeout > 0 {
		fmt.Fprintf(&b, " waits %s", p.Timeout)
		if p.Guessed {
			b.WriteString(" (a guess)")
		}
	} else {
		b.WriteString(" does not say how long it waits")
	}
	switch {
	case len(p.Retries) > 0:
		b.WriteString(", tries again after")
		for i, r := range p.Retries {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(" " + r.String())
		}
	case p.Horizon > 0:
		fmt.Fprintf(&b, ", tries for %s at times it does not publish (doubling waits are assumed)", p.Horizon)
	default:
		b.WriteString(", never tries again")
	}
	return b.String()
}

func providerNames() []string {
	var names []string
	for p := range providers.All() {
		names = append(names, p.Name)
	}
	return names
}

func providerNamed(name string) (receive.Provider, error) {
	p, ok := providers.Named(name)
	if !ok {
		return p, usagef("--provider must be one of %s", strings.Join(providerNames(), ", "))
	}
	return p, nil
}
