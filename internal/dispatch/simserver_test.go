package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// simServer is a customer's server in a simulation. The sender's lock guards it.
type simServer struct {
	tenant    int
	behaviour string
	got       map[outbox.EventID]int // answered 2xx
	replays   int                    // asked for by people
	forgotten int                    // 2xx whose node was killed before it could record them
	rate      *limitedServer
	rand      *rand.Rand
}

var behaviours = []string{"well", "well", "slow", "flaky", "limited", "down", "refuses", "hangs"}

// answer is how the simulated servers answer.
func (s *simulation) answer(ctx context.Context, x sent) attempt.Outcome {
	s.sender.mu.Lock()
	server := s.servers[x.url]
	behaviour := server.behaviour
	life := s.life
	s.inFlight[server.tenant]++
	s.most[server.tenant] = max(s.most[server.tenant], s.inFlight[server.tenant])
	wait := time.Duration(1+server.rand.IntN(20)) * time.Millisecond
	switch {
	case behaviour == "slow":
		wait = time.Duration(server.rand.IntN(3000)) * time.Millisecond
	case behaviour == "hangs":
		wait = 5 * time.Second
	}
	s.sender.mu.Unlock()

	cut := false
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		cut = true
	case <-life.Done(): // the process dies, and its connections with it
		cut = true
	}
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	if life == s.life {
		s.inFlight[server.tenant]--
	}
	if cut {
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindReset}, Aborted: true}
	}
	switch behaviour {
	case "flaky":
		if server.rand.IntN(2) == 0 {
			return failed(503)
		}
	case "limited":
		if !server.rate.take(time.Now()) {
			o := failed(429)
			if server.rand.IntN(3) == 0 {
				o.RetryAfter = time.Second
			}
			return o
		}
	case "down":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindRefused, Message: "Refused."}}
	case "refuses":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomePermanent, Kind: outbox.KindHTTPStatus, StatusCode: 404, Message: "Not there."}}
	case "hangs":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout, Message: "Too slow."}}
	}
	server.got[x.Event]++
	return delivered()
}
