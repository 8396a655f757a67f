package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

func TestSentencesAreFilledInAlikeInGoAndInSQL(t *testing.T) {
	for _, sentence := range []string{rules.LeaseExpired, rules.CrashedDead, rules.CrashedAlone, rules.StrandedDead} {
		require.Equal(t, strings.Count(sentence, "%"), strings.Count(sentence, "%s"), sentence)
	}
	require.Equal(t, "the lease of worker a%sb expired (crash 2)", rules.CrashError("a%sb", 2))
}

func TestCrashCountStops(t *testing.T) {
	require.Equal(t, 1, rules.Crashes(0))
	require.Equal(t, store.MostCrashes, rules.Crashes(store.MostCrashes))
	require.False(t, rules.Isolated(1))
	require.True(t, rules.Isolated(2))
}

func TestWalkStaysBehindTheAgeOfDeletion(t *testing.T) {
	for _, row := range []struct{ ended, dead, age time.Duration }{
		{0, 0, rules.Forever},
		{-1, store.KeepForever, rules.Forever},
		{time.Hour, 0, time.Hour + 15*time.Minute},
		{0, 24 * time.Hour, 25 * time.Hour},
		{24 * time.Hour, 4 * time.Hour, 5 * time.Hour},
	} {
		require.Equal(t, row.age, rules.WalkAge(&store.SweepRequest{Retention: row.ended, RetentionDead: row.dead}), "%+v", row)
	}
}

func TestSpecThatCannotBeReadFiresAtOtherTimes(t *testing.T) {
	one := store.Schedule{Name: "nightly", Rule: store.Every(time.Hour)}
	require.True(t, rules.SameSpecTimes(&one, one.Spec()))
	require.False(t, rules.SameSpecTimes(&one, []byte("no JSON")))
}
