package operate

import (
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// span is a length of time as people say it, in its two largest units.
func span(d time.Duration) string {
	d = d.Abs()
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return units(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < day:
		return units(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return units(int(d/day), "d", int(d%day/time.Hour), "h")
	}
}

// seconds is a length of time in whole seconds or more.
func seconds(d time.Duration) string {
	if d = d.Round(time.Second); d < time.Second {
		return "less than 1 s"
	}
	return span(d)
}

func units(large int, unit string, small int, smaller string) string {
	if small == 0 {
		return fmt.Sprintf("%d %s", large, unit)
	}
	return fmt.Sprintf("%d %s %d %s", large, unit, small, smaller)
}

// counted is a number of things, and what the number is.
func counted(n store.Count, one, more string) string {
	word := more
	if n.N == 1 && !n.AtLeast {
		word = one
	}
	switch {
	case n.AtLeast:
		return fmt.Sprintf("more than %d %s", n.N, word)
	case n.Estimated:
		return fmt.Sprintf("about %d %s", n.N, word)
	default:
		return fmt.Sprintf("%d %s", n.N, word)
	}
}

// firstLine is the beginning of a text that may be long.
func firstLine(text string) string {
	line, _, cut := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > textMost {
		return string(runes[:textMost]) + "…"
	}
	if cut {
		return line + "…"
	}
	return line
}

// textMost bounds a text inside another, in characters.
const textMost = 200

// shellWord is a word as a shell reads it.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=+,", r)
	}
	if text != "" && !strings.HasPrefix(text, "-") && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
