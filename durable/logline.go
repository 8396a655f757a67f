package durable

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

const (
	maxLogLine = 4 << 10 // bytes of one line
	logCut     = "… (earlier lines cut)\n"
)

// logLines keeps the latest lines that a handler has logged.
type logLines struct {
	logger *slog.Logger

	mu    sync.Mutex
	lines []string // each with its line end
	bytes int
	cut   bool
}

// newLogLines returns lines whose logger passes everything on to next.
func newLogLines(next *slog.Logger) *logLines {
	l := &logLines{}
	own := slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: inUTC})
	l.logger = slog.New(&keptHandler{next: next.Handler(), own: own})
	return l
}

func inUTC(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// Write keeps one line.
func (l *logLines) Write(line []byte) (int, error) {
	const mark = " … (cut)\n"
	text := string(line)
	if len(text) > maxLogLine {
		text = storable.Clip(text, maxLogLine-len(mark)) + mark
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, text)
	l.bytes += len(text)
	drop := 0
	for len(l.lines)-drop > store.MaxLogLines || l.bytes > store.MaxLogSize-len(logCut) {
		l.bytes -= len(l.lines[drop])
		drop++
	}
	if drop > 0 {
		l.cut = true
		l.lines = append(l.lines[:0], l.lines[drop:]...)
	}
	return len(line), nil
}

// text is what is kept, fit for every store.
func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	if l.cut {
		b.WriteString(logCut)
	}
	for _, line := range l.lines {
		b.WriteString(line)
	}
	return storable.Text(strings.TrimSuffix(b.String(), "\n"), store.MaxLogSize)
}

// keptHandler gives records to the worker's logger, and those that are kept to
// the lines as well.
type keptHandler struct {
	next, own slog.Handler
}

func (h *keptHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.own.Enabled(ctx, level) || h.next.Enabled(ctx, level)
}

func (h *keptHandler) Handle(ctx context.Context, record slog.Record) error {
	if h.own.Enabled(ctx, record.Level) {
		_ = h.own.Handle(ctx, record.Clone()) // writing to memory does not fail
	}
	if !h.next.Enabled(ctx, record.Level) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

func (h *keptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &keptHandler{next: h.next.WithAttrs(attrs), own: h.own.WithAttrs(attrs)}
}

func (h *keptHandler) WithGroup(name string) slog.Handler {
	return &keptHandler{next: h.next.WithGroup(name), own: h.own.WithGroup(name)}
}

// handlerLog is the logger that a handler is given.
func (x *execution) handlerLog() *slog.Logger {
	logger := x.logger()
	if x.w.config.NoRunLog {
		return logger
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lines == nil {
		x.lines = newLogLines(logger)
	}
	return x.lines.logger
}

// logText is what the handler has logged, for an outcome that keeps it.
func (x *execution) logText(kind store.OutcomeKind) string {
	x.mu.Lock()
	lines := x.lines
	x.mu.Unlock()
	if lines == nil || kind != store.Success && !kind.Recorded() {
		return ""
	}
	return lines.text()
}

// errorText is err.Error(), which a user's type may make panic, without the line ends
// that programs of others put behind theirs.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("an error of type %T whose Error method panics", err)
		}
	}()
	return strings.TrimRight(err.Error(), " \t\r\n")
}
