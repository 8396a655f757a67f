package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cronlib "github.com/netresearch/go-cron"
)

// wallClock fires at wall-clock times of a zone.
//
// A rule that repeats within the day (a second, minute or hour field with * or
// a step, such as */15) fires at every instant whose wall time matches: in a
// repeated hour twice as often, in a skipped hour not at all, so that its
// rhythm continues. Any other rule names fixed times of day: each fires once, at
// the first of two instants that have it, and at the first instant after the gap
// when no instant has it.
type wallClock struct {
	fields  *cronlib.SpecSchedule
	repeats bool
}

const example = `want five fields such as "0 3 * * 1-5" (03:00 on weekdays), six with seconds first, or @daily`

// searchYears is how far the next match may lie ahead. February 29 on a
// weekday comes once in 28 years, or 40 around 2100.
const searchYears = 45

func parse(expression string) (*wallClock, error) {
	text := strings.ToLower(strings.TrimSpace(expression)) // an H, as in THU, would mean something else to the library
	wrong := func(err error) error { return fmt.Errorf("cron %q: %w: %s", expression, err, example) }
	if !strings.HasPrefix(text, "@") {
		var err error
		if text, err = normalize(text); err != nil {
			return nil, wrong(err)
		}
	} else if strings.HasPrefix(text, "@every") {
		return nil, wrong(errors.New("an interval is no cron expression"))
	}
	parser, err := cronlib.TryNewParser(cronlib.SecondOptional | cronlib.Minute | cronlib.Hour | cronlib.Dom | cronlib.Month | cronlib.Dow |
		cronlib.DomL | cronlib.DomW | cronlib.DowNth | cronlib.DowLast | cronlib.Descriptor | cronlib.DowOrDom)
	if err != nil {
		return nil, fmt.Errorf("cron parser: %w", err)
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return nil, wrong(err)
	}
	fields, ok := parsed.(*cronlib.SpecSchedule)
	if !ok {
		return nil, wrong(errors.New("it names no times"))
	}
	fields.Location, fields.MaxSearchYears = time.UTC, searchYears
	w := &wallClock{fields: fields, repeats: text == "@hourly"}
	for _, field := range firstFields(text) {
		w.repeats = w.repeats || strings.ContainsAny(field, "*?/")
	}
	return w, nil
}

// firstFields are the fields of an expression that count hours, minutes and
// seconds.
func firstFields(expression string) []string {
	fields := strings.Fields(expression)
	if len(fields) == 6 {
		return fields[:3]
	}
	return fields[:min(len(fields), 2)]
}

// matches reports whether the fields hold at a wall time.
func (w *wallClock) matches(wall time.Time) bool {
	return w.fields.Next(wall.Add(-time.Second)).Equal(wall)
}
