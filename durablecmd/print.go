package durablecmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// printJSON prints one value as JSON, indented, safe for a terminal.
func (p *program) printJSON(value any) error {
	encoder := newEncoder(p.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// printRuns prints a page of runs as a table.
func (p *program) printRuns(list operate.RunList, now time.Time) error {
	if len(list.Runs) == 0 && list.Next == nil {
		_, err := fmt.Fprintln(p.stdout, "no runs")
		return err
	}
	table := p.newTable("CREATED", "WORKER", "ATTEMPT", "QUEUE", "DUE", "ERROR")
	table.row("ID", "JOB", "QUEUE", "STATE", "ATTEMPT", "DUE", "CREATED", "WORKER", "ERROR")
	for _, r := range list.Runs {
		table.row(r.ID.String(), r.Job, r.Queue, r.State.String(), fmt.Sprintf("%d/%d", r.Attempt, r.MaxAttempts),
			ago(r.DueAt, now), ago(r.CreatedAt, now), orDash(r.Worker), clipped(orDash(r.Error), 60))
	}
	if err := table.flush(); err != nil {
		return err
	}
	if list.Next != nil {
		_, err := fmt.Fprintf(p.stdout, "\nmore: --cursor %s\n", *list.Next)
		return err
	}
	return nil
}

// printRun prints one run for a person, with some of its texts, and with more rows.
func (p *program) printRun(r durable.Record, now time.Time, texts texts, more ...[2]string) error {
	instant := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Format(time.RFC3339) + " (" + ago(*t, now) + ")"
	}
	table := p.newTable()
	table.row("id", r.ID.String())
	table.row("job", r.Job)
	table.row("queue", r.Queue)
	table.row("state", r.State.String())
	table.row("attempt", fmt.Sprintf("%d of %d", r.Attempt, r.MaxAttempts))
	table.row("crashes", crashText(&r))
	table.row("priority", strconv.Itoa(r.Priority))
	table.row("due", instant(&r.DueAt))
	table.row("created", instant(&r.CreatedAt))
	table.row("started", instant(r.StartedAt))
	table.row("ended", instant(r.FinishedAt))
	if r.ExpiresAt != nil {
		table.row("expires", instant(r.ExpiresAt))
	}
	if r.Timeout > 0 {
		table.row("timeout", time.Duration(r.Timeout).String())
	}
	table.row("worker", orDash(r.Worker))
	table.row("fence", strconv.FormatInt(int64(r.Fence), 10))
	if r.Schedule != nil {
		table.row("schedule", *r.Schedule)
	}
	if r.Occurrence != nil {
		table.row("occurrence", string(store.ZonedTimeOf(*r.Occurrence)))
	}
	if r.Key != nil {
		table.row("unique key", *r.Key)
	}
	if len(r.Limits) > 0 {
		table.row("limits", strings.Join(r.Limits, ", "))
	}
	if len(r.Tags) > 0 {
		table.row("tags", strings.Join(r.Tags, ", "))
	}
	table.metadata(r.Metadata)
	if r.Progress != nil {
		table.row("progress", strings.TrimSpace(fmt.Sprintf("%.4g %% %s", 100*r.Progress.Fraction, r.Progress.Note))+" ("+ago(r.Progress.At, now)+")")
	}
	if len(r.Checkpoint) > 0 {
		table.row("checkpoint", oneLine(r.Checkpoint))
	}
	for _, row := range more {
		table.row(row[0], row[1])
	}
	table.row("args", oneLine(r.Args))
	table.row("result", oneLine(r.Result))
	table.row("error", orDash(r.Error))
	if err := table.flush(); err != nil || len(r.Attempts) == 0 {
		return err
	}
	return p.printAttempts(r, now, texts)
}

// printAttempts prints the attempts of a run, below it, with some of their texts.
func (p *program) printAttempts(r durable.Record, now time.Time, texts texts) error {
	table := p.newTable()
	if _, err := fmt.Fprintln(p.stdout); err != nil {
		return err
	}
	table.row("EXECUTION", "ATTEMPT", "OUTCOME", "WORKER", "STARTED", "TOOK", "ERROR")
	for i, a := range r.Attempts {
		table.row(strconv.Itoa(i+1), fmt.Sprintf("%d of %d", a.Number, r.MaxAttempts), a.Outcome.String(), a.Worker, ago(a.StartedAt, now),
			a.EndedAt.Sub(a.StartedAt).Round(time.Millisecond).String(), clipped(orDash(a.Error), 100))
	}
	if err := table.flush(); err != nil {
		return err
	}
	return p.printTexts(&r, texts)
}

// crashText says how many workers died while they had the run, which costs no attempt.
func crashText(r *durable.Record) string {
	if r.CrashCount == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (not counted as attempts)", r.CrashCount)
}

// metadata adds a row of metadata in the order of its names, if there is any.
func (t *table) metadata(m store.Metadata) {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		words = append(words, name+"="+m[name])
	}
	if len(words) > 0 {
		t.row("metadata", strings.Join(words, ", "))
	}
}

// texts selects the executions whose stacks and logs are printed.
type texts int

const (
	latestTexts texts = iota // of the last one that left any
	allTexts
)

// printTexts prints the stacks of panics and what handlers have logged, execution by
// execution.
func (p *program) printTexts(r *durable.Record, which texts) error {
	var with []int
	for i, a := range r.Attempts {
		if textOf(a.Stack)+textOf(a.Log) != "" {
			with = append(with, i)
		}
	}
	earlier := len(with) - 1
	if which == latestTexts && earlier > 0 {
		with = with[earlier:]
	}
	for _, i := range with {
		if err := p.printText(r, i); err != nil {
			return err
		}
	}
	if which == allTexts || earlier <= 0 {
		return nil
	}
	_, err := fmt.Fprintf(p.stdout, "\n%d earlier %s left a stack or a log: --full\n", earlier, plural(int64(earlier), "execution", "executions"))
	return err
}

// printText prints what one execution has left.
func (p *program) printText(r *durable.Record, i int) error {
	a := &r.Attempts[i]
	for _, part := range []struct{ what, text string }{{"stack", textOf(a.Stack)}, {"log", textOf(a.Log)}} {
		if part.text == "" {
			continue
		}
		_, err := fmt.Fprintf(p.stdout, "\n%s of execution %d (attempt %d of %d):\n%s\n", part.what, i+1, a.Number, r.MaxAttempts,
			printableLines(strings.TrimSuffix(part.text, "\n")))
		if err != nil {
			return err
		}
	}
	return nil
}

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// printable shows text on one line: characters that are not graphic, line ends
// and direction marks among them, are written as in a Go string, and bytes that
// are not UTF-8 as U+FFFD.
func printable(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !unprintable(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// printableLines is printable with line ends kept, and tabs, which indent the
// lines of some errors and of logs, as spaces.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != '\u00a0' }

func oneLine(text json.RawMessage) string {
	if len(text) == 0 {
		return "-"
	}
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

func orDash(text *string) string {
	if text == nil || *text == "" {
		return "-"
	}
	return *text
}

// plural is the word for a number of things.
func plural(n int64, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// clipped shortens text to n characters.
func clipped(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// ago reports an instant as people do: "3m ago", "in 2h".
func ago(t, now time.Time) string {
	if t.After(now) {
		return "in " + brief(t.Sub(now))
	}
	return brief(now.Sub(t)) + " ago"
}

// brief is a duration in its largest unit.
func brief(d time.Duration) string {
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}

// plainJSON writes JSON on, and as \u… what a terminal may obey and people do
// not see: control characters, those from U+0080 to U+009F among them, and
// format characters such as direction marks. The JSON means the same. Bytes
// that are not UTF-8 become \ufffd. Each Write has whole characters.
type plainJSON struct{ io.Writer }

// Write writes one text.
func (w plainJSON) Write(text []byte) (int, error) {
	if _, err := w.Writer.Write(escapedJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

func escapedJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case r < 0x7f || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, rest[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	return out
}

// newEncoder makes an encoder that writes for people and terminals.
func newEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(plainJSON{w})
	encoder.SetEscapeHTML(false)
	return encoder
}
