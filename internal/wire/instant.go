package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Moment is a time, or how long before now it was.
type Moment struct {
	at  time.Time
	ago time.Duration // when at is the zero time
}

// ParseMoment reads a time such as 2030-01-31T08:00:00Z, or how long ago it was, such as
// 90s, 1h or 7d.
func ParseMoment(text string) (Moment, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.IsZero() {
		return Moment{}, fmt.Errorf("%s: want a year from 1970 to 9999", text) // to all else it says that no time is given
	} else if err == nil {
		return Moment{at: at}, nil
	}
	ago, err := Ago(text)
	if err != nil || ago < 0 {
		return Moment{}, fmt.Errorf("%.100q: want a time such as 2030-01-31T08:00:00Z, or how long ago it was, such as 90s, 1h or 7d", text)
	}
	return Moment{ago: ago}, nil
}

// On is the time that is meant.
func (m Moment) On(now time.Time) time.Time {
	if m.at.IsZero() {
		return now.Add(-m.ago)
	}
	return m.at
}

// Instant is ParseMoment of text, on now.
func Instant(text string, now time.Time) (time.Time, error) {
	m, err := ParseMoment(text)
	if err != nil {
		return time.Time{}, err
	}
	return m.On(now), nil
}

// Ago reads a duration, or a number of days.
func Ago(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
