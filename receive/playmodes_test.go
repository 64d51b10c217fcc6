package receive_test

import (
	"flag"
	"testing"
	"time"
)

// modes are the ways that must never be wrong.
var modes = map[string]mode{
	"sync, closed":            {permanent: true},
	"sync, open":              {permanent: true, policy: "open"},
	"sync, fallback":          {permanent: true, policy: "fallback"},
	"sync, letters elsewhere": {permanent: true, elsewhere: true},
	"sync in tx, closed":      {permanent: true, tx: true},
	"sync in tx, open":        {tx: true, policy: "open"},
	"inbox":                   {permanent: true, inbox: true, worker: true},
	"inbox, fallback":         {permanent: true, inbox: true, worker: true, policy: "fallback"},
	"inbox, lease renewed":    {permanent: true, inbox: true, worker: true, renewed: true},
	"inbox in tx":             {permanent: true, inbox: true, worker: true, tx: true},
	"inbox in tx, renewed":    {permanent: true, inbox: true, worker: true, tx: true, renewed: true},
	"inbox, poison":           {inbox: true, worker: true, poison: true},
}

var histories = flag.Int("histories", 0, "histories per mode; 0: 1,000, under -short 60")

func TestPlay_noHistoryLosesRepeatsOrLies(t *testing.T) {
	n := *histories
	if n == 0 {
		n = 1000
		if testing.Short() {
			n = 60
		}
	}
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range n {
				for what, how := range play(t, m, uint64(seed)) {
					t.Errorf("seed %d: %s: %s", seed, what, how)
				}
				if seed > 0 && seed%10_000 == 0 {
					t.Logf("%s: %d histories", time.Now().Format(time.TimeOnly), seed)
				}
			}
		})
	}
}
