package durablecmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFlagsAtTheirExtremes: a number, a duration or a time that is as large, or as small, as
// its flag can read is refused in a sentence, or means what it says. What it means can be
// listed afterwards.
func TestFlagsAtTheirExtremes(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	const run = "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e"
	for _, line := range []string{
		"enqueue log --force", "enqueue log --force --id " + run, "schedules create nightly log --force --every 1h",
		"limits set api --kind token-bucket --max 5 --period 1s --burst 5",
	} {
		e := execute(t, env, strings.Fields(line)...)
		require.Equal(t, 0, e.code, "%s: %s", line, e.stderr)
	}
	numbers := []string{"9223372036854775807", "-9223372036854775808", "2147483648"}
	durations := []string{"2562047h47m16.854775807s", "-2562047h47m16.854775808s", "1ns"}
	times := []string{"9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z"}
	for _, flags := range []struct {
		of     []string
		values []string
	}{
		{[]string{"enqueue log --force --priority", "enqueue log --force --max-attempts", "runs list --limit", "runs logs " + run + " --tail", "queues set mail --max-concurrent",
			"audit list --limit", "audit list --cursor", "locks list --limit", "locks forced --limit", "locks release a --slot", "schedules preview nightly --next",
			"schedules preview nightly --past", "schedules set nightly --catch-up-most", "schedules set nightly --max-unfinished", "schedules set nightly --priority",
			"schedules set nightly --max-attempts", "limits set api --max", "limits set api --burst", "limits set api --buckets"}, numbers},
		{[]string{"enqueue log --force --in", "enqueue log --force --timeout", "enqueue log --force --unique a --unique-for", "enqueue log --force --debounce a --quiet",
			"enqueue log --force --debounce a --quiet 1s --at-most", "runs rerun " + run + " --in", "schedules set nightly --every", "schedules set nightly --catch-up-within",
			"schedules set nightly --jitter", "schedules set nightly --spread", "schedules set nightly --timeout", "limits set api --period",
			"limits set api --when-full retry --retry-after", "doctor --timeout", "runs list --since"}, durations},
		{[]string{"enqueue log --force --at", "enqueue log --force --expires-at", "schedules set nightly --start", "schedules set nightly --end", "runs list --since",
			"runs list --until", "runs list --ended-since", "runs count --since", "audit list --since"}, times},
	} {
		for _, line := range flags.of {
			for _, value := range flags.values {
				line := line + "=" + value
				began := time.Now()
				e := execute(t, env, strings.Fields(line)...)
				require.Contains(t, []int{0, 1, 2}, e.code, "%s: %s", line, e.stderr)
				require.NotContains(t, e.stderr, "goroutine", line)
				require.True(t, e.code == 0 || e.stderr != "" || strings.HasPrefix(line, "doctor"), "%s: %d", line, e.code)
				require.Less(t, time.Since(began), time.Minute, line)
			}
		}
	}
	for _, line := range []string{"runs list", "runs count", "schedules list", "schedules preview nightly", "limits list", "queues list", "audit list", "runs explain " + run} {
		for _, form := range []string{"", " --json"} {
			e := execute(t, env, strings.Fields(line+form)...)
			require.Equal(t, 0, e.code, "%s: %s%s", line+form, e.stdout, e.stderr)
		}
	}
}

// TestTheYearOneIsNoTime: elsewhere it says that no time is given, and so that a run never
// expires, or that a bulk change has no bound.
func TestTheYearOneIsNoTime(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	require.Equal(t, 0, execute(t, env, "enqueue", "log", "--force").code)
	for _, line := range []string{"enqueue log --force --at", "enqueue log --force --expires-at", "runs delete --yes --job log --until", "runs cancel --yes --job log --since"} {
		e := execute(t, env, append(strings.Fields(line), "0001-01-01T00:00:00Z")...)
		require.Equal(t, 2, e.code, "%s: %s", line, e.stdout)
		require.Contains(t, e.stderr, "want a year from 1970 to 9999", line)
	}
	require.Contains(t, execute(t, env, "runs", "count").stdout, "1")
}
