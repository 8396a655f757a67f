package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Instant reads a time such as 2030-01-31T08:00:00Z, or how long before now it was,
// such as 90s, 1h or 7d.
func Instant(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := Ago(text)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%.100q: want a time such as 2030-01-31T08:00:00Z, or how long ago it was, such as 90s, 1h or 7d", text)
	}
	return now.Add(-ago), nil
}

// Ago reads a duration, or a number of days.
func Ago(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
