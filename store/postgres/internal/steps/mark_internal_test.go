package steps

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMark_LooksFromTheBeginningForATwentiethOfTheTime has looks that take long, and looks that do not.
func TestMark_LooksFromTheBeginningForATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var m mark
	first := m.begin()
	require.Zero(t, first.since)
	require.Equal(t, time.Duration(-1), first.next(ahead{now: now}), "there is nothing")
	m.end(first, ahead{now: now, took: 100 * time.Millisecond, taken: manyTaken - 1})
	require.Zero(t, m.begin().since, "few were taken")
	m.end(first, ahead{now: now, took: 100 * time.Millisecond, taken: 1})
	second := m.begin()
	require.Equal(t, now.Add(-markBehind), second.since, "what was taken is not looked at")
	require.InDelta(t, 2*time.Second, second.next(ahead{now: now}), float64(time.Second), "then it looks from the beginning")
	require.Equal(t, time.Millisecond, second.next(ahead{now: now, due: new(now.Add(time.Millisecond))}))
	due := now.Add(-time.Minute)
	m.end(second, ahead{now: now, due: &due})
	require.Equal(t, due, m.begin().since, "what was left is looked at")
	m.end(second, ahead{now: now.Add(-time.Hour)})
	require.Equal(t, now.Add(-time.Hour-markBehind), m.begin().since, "the store's clock was set back")

	var quick mark
	quick.end(quick.begin(), ahead{now: now, taken: manyTaken})
	quick.end(quick.begin(), ahead{now: now, took: 100 * time.Millisecond})
	require.Zero(t, quick.begin().since, "those that were taken before a quick look do not count")
}
