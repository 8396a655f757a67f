package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// ago says an instant as people do: "3 min ago", "in 2 h".
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + brief((-d).Truncate(time.Second))
	case d >= time.Minute: // the exact time is in the title
		large, _, _ := strings.Cut(strings.Replace(brief(d), " ", "\u00a0", 1), " ")
		return strings.Replace(large, "\u00a0", " ", 1) + " ago"
	default:
		return brief(d.Truncate(time.Second)) + " ago"
	}
}

// brief is a duration in its one or two largest units.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Microsecond:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Truncate(100*time.Millisecond).Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 10*time.Minute:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < day:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	case d < 10*day:
		return two(int(d/day), "d", int(d.Hours())%24, "h")
	default:
		return fmt.Sprintf("%d d", int(d/day))
	}
}

func two(large int, unit string, small int, smaller string) string {
	if small == 0 {
		return fmt.Sprintf("%d %s", large, unit)
	}
	return fmt.Sprintf("%d %s %d %s", large, unit, small, smaller)
}

// number writes a whole number with its thousands apart.
func number(n int64) string {
	if n < 0 {
		return "-" + number(-n)
	}
	text := strconv.FormatInt(n, 10)
	var groups []string
	for len(text) > 3 {
		groups = append([]string{text[len(text)-3:]}, groups...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, groups...), ",")
}

// tally is a count with how sure it is.
func tally(c store.Count) string {
	switch {
	case c.Estimated:
		return "about " + rough(c.N)
	case c.AtLeast:
		return "more than " + number(c.N)
	default:
		return number(c.N)
	}
}

// rough is a number of two digits and its magnitude.
func rough(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%d k", n/1000)
	default:
		return number(n)
	}
}

// bytesText is a number of bytes.
func bytesText(n int) string {
	if n == 1 {
		return "1 byte"
	}
	if n < 10_000 {
		return number(int64(n)) + " bytes"
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// clip shortens a text to a number of bytes, at a whole character.
func clip(n int, text string) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// zoned is an instant in its own zone, not in the reader's.
func zoned(t *time.Time) string {
	return cell(t.Format("Mon 2 Jan 2006 15:04:05 ") + t.Location().String())
}

// cellMost bounds a text in one place of a page.
const cellMost = 4 << 10

// cell is any text as a page shows it.
func cell(text any) string {
	switch text := text.(type) {
	case nil:
		return ""
	case *string:
		if text == nil {
			return ""
		}
		return clip(cellMost, *text)
	case string:
		return clip(cellMost, text)
	default:
		return clip(cellMost, fmt.Sprint(text))
	}
}

// firstLine is the beginning of a text, for a row of a table.
func firstLine(n int, text any) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cell(text)), "\n")
	return clip(n, line)
}

// compactFigure is a figure where there is little room; its title says it in words.
func compactFigure(f operate.Figure) string {
	switch f.Is {
	case operate.AtLeast:
		return "> " + number(int64(f.N))
	case operate.About:
		return "≈ " + rough(int64(f.N))
	default:
		if f.N < 100_000 {
			return number(int64(f.N))
		}
		return rough(int64(f.N))
	}
}

// plural is the number of things with their word.
func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + more
}

// per is a rate as people read it.
func per(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", rate), ".0")
	default:
		return number(int64(rate + 0.5))
	}
}

// initialWord is a word with a capital at its beginning.
func initialWord(word any) string { return strings.TrimSuffix(initial(fmt.Sprint(word)), ".") }

// initial is a sentence with a capital at its beginning and a full stop at its end.
func initial(text string) string {
	text = cell(text)
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(r)) + text[size:]
	if strings.ContainsAny(text[len(text)-1:], ".!?…") {
		return text
	}
	return text + "."
}
