package durablecmd

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/operate"
)

const (
	finishWithin = 2 * time.Second        // bounds the wait for a log that is not read, when a service ends
	hurryWithin  = 200 * time.Millisecond // likewise, when it is to exit immediately
)

// config reads the environment and makes the program's logger, of the given
// level where the environment names none.
func (p *program) config(level string) (Config, *slog.Logger, error) {
	_, terminal := p.terminal(p.stderr)
	config, warnings, err := loadConfig(p.environ, terminal)
	if err != nil {
		return config, nil, err
	}
	if p.redact, err = operate.NewRedaction(list(config.Redact)...); err != nil {
		return config, nil, err
	}
	if config.given[varLogLevel] {
		level = config.LogLevel
	}
	p.logAside(config.LogFormat)
	logger := newLogger(p.errors(), level, config.LogFormat)
	for _, warning := range warnings {
		logger.Warn(warning, "event", "config.unknown_variable")
	}
	return config, logger, nil
}

// newLogger makes the logger of the configuration. Both formats escape control
// characters in what they are given.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	options := &slog.HandlerOptions{}
	var threshold slog.Level
	_ = threshold.UnmarshalText([]byte(level)) // loadConfig has checked it
	options.Level = threshold
	if format == "json" {
		options.ReplaceAttr = durationAsText
		return slog.New(slog.NewJSONHandler(plainJSON{w}, options)) // one Write a record
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// durationAsText has JSON say 1.5s, as text does, also in lines of handlers.
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// logAside keeps a service from waiting for the reader of its log, and from ending when
// the reader goes away. Other commands wait for their reader, and a broken pipe ends them,
// as it does any Unix filter.
func (p *program) logAside(format string) {
	if !p.service || p.lines != nil {
		return
	}
	if p.brokenPipes != nil {
		p.brokenPipes()
	}
	p.lines = logs.New(p.stderr, logs.Config{Handler: func(w io.Writer) slog.Handler { return newLogger(w, "warn", format).Handler() }})
}

// outliveBrokenPipes makes a write to a pipe without a reader fail on the standard streams
// too, where it would end the process. The signal is received and not ignored, because the
// programs that the job exec starts would inherit that.
func outliveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// errors is where the program says what is wrong: stderr, or the log of a service.
func (p *program) errors() io.Writer {
	if p.lines != nil {
		return p.lines
	}
	return p.stderr
}

// finishLog waits until the log of a service has been written. It gives up when a write has
// not returned for so long.
func (p *program) finishLog(within time.Duration) {
	if p.lines == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within-p.lines.Blocked())
	defer cancel()
	_ = p.lines.Flush(ctx) // there is no other place to report it
}
