package cron_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// FuzzCompile: whatever is typed is refused, or fires at instants that rise,
// each with a key of its own, found forwards and backwards alike.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"*/5 * * * *", "0 0 L * fri#2", "30 2 * * *", "@daily", "* * * * * *", "0 22-2 15W,L-2 feb-apr 5L", "59-0/7 1 * * 6-1"} {
		f.Add(seed, "Europe/Berlin", "sat,sun", "", "")
		f.Add(seed, "Australia/Lord_Howe", "*", "22:00", "06:00")
		f.Add(seed, "", "", "2026-12-24", "2026-12-26")
	}
	from := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expression, zone, days, since, until string) {
		compiled, err := cron.Compile(cron.Spec{Expression: expression, Zone: zone, Blackouts: []cron.Window{{Days: days, From: since, Until: until}}})
		if err != nil {
			return
		}
		rule := compiled.Search(t.Context())
		keys := map[string]bool{}
		var last time.Time
		for at, n := rule.Next(from), 0; !at.IsZero() && n < 20; at, n = rule.Next(at), n+1 {
			require.True(t, at.After(from) && at.After(last))
			require.False(t, keys[rule.Key(at)])
			require.Equal(t, at, rule.Last(from, at))
			keys[rule.Key(at)], last = true, at
		}
	})
}
