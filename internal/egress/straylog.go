package egress

import (
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// CatchStrayLog takes over the standard library's default logger for the life of the process.
// Libraries print there what they were sent and did not expect, and so hand the log to whoever is
// called: any bytes, any number of times. What is caught is counted and reported at most once a
// minute, without the bytes. Call it once, after slog.SetDefault, which takes over the same
// logger.
func CatchStrayLog(logger *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(&strayLog{logger: logger})
}

type strayLog struct {
	logger *slog.Logger

	mu         sync.Mutex
	held       int
	reportedAt time.Time
}

func (s *strayLog) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	if now := time.Now(); now.Sub(s.reportedAt) >= time.Minute {
		s.logger.LogAttrs(context.Background(), slog.LevelDebug, "a library logged something that is not shown", slog.Int("lines", s.held))
		s.held, s.reportedAt = 0, now
	}
	return len(line), nil
}
