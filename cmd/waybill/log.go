package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/waybill-dev/waybill/internal/config"
)

// logger writes the process's log to standard error.
func (sh *shell) logger(format config.LogFormat, level slog.Level) *slog.Logger {
	if format == config.LogAuto {
		format = config.LogJSON
		if isTerminal(sh.err) {
			format = config.LogText
		}
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: legible}
	if format == config.LogText {
		return slog.New(slog.NewTextHandler(sh.err, options))
	}
	return slog.New(slog.NewJSONHandler(sh.err, options))
}

// legible writes lengths of time with their unit, where JSON would have bare nanoseconds, and
// errors on one line: those of the database come with line breaks and tabs.
func legible(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	case error:
		a.Value = slog.StringValue(oneLine(v))
	}
	return a
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// quiet passes on warnings and errors only.
type quiet struct{ slog.Handler }

// Enabled reports whether a line of this level is shown.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the handler quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps the handler quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
