package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/config"
)

// logged writes one line in each format; want must be in both.
func logged(t *testing.T, want string, args ...any) {
	t.Helper()
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		var out bytes.Buffer
		sh := &shell{streams: streams{err: &out}}
		sh.logger(format, slog.LevelInfo).Warn("a line", args...)
		line := out.String()
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\t") || strings.Contains(line, `\n`) || strings.Contains(line, `\t`) {
			t.Errorf("%s: not one plain line: %q", format, line)
		}
		if format == config.LogJSON {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			line = fmt.Sprint(fields)
		}
		if !strings.Contains(line, want) {
			t.Errorf("%s: want %q in %s", format, want, line)
		}
	}
}

func TestLogger_isLegible(t *testing.T) {
	logged(t, "5.377s", "after", 5377*time.Millisecond)
	logged(t, "1m30s", slog.Group("stop", "within", 90*time.Second))
	logged(t, "no luck; none at all", "error", errors.Join(errors.New("no  luck"), errors.New("none\tat all")))

	// A real one: with TLS and without, the same port refuses.
	_, err := pgx.Connect(t.Context(), "postgres://someone@127.0.0.1:1/x?sslmode=prefer")
	if err == nil || !strings.Contains(err.Error(), "\n\t") {
		t.Fatalf("%q proves nothing", err)
	}
	if text := oneLine(err); strings.Count(text, "refused") != 1 {
		t.Errorf("it says a thing twice: %s", text)
	}
	logged(t, "connection refused", "error", fmt.Errorf("heartbeat: %w", err))
}
