package durable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

func TestArgsThatTookTheirPlaceAreRead(t *testing.T) {
	t.Parallel()
	job := durable.NewJob[string]("letter")
	run := job.New("to Ada")
	require.NoError(t, store.CheckRuns([]durable.NewRun{run}))
	for _, args := range [][]byte{nil, {}, []byte(`"to Ada`), run.Args[:4], run.Args[1:]} {
		run := run
		run.Args = args
		err := store.CheckRuns([]durable.NewRun{run})
		require.ErrorIs(t, err, durable.ErrInvalid, string(args))
		require.ErrorContains(t, err, "args: not valid JSON")
	}
}

func TestAnIDMayBeThereOnce(t *testing.T) {
	t.Parallel()
	job := durable.NewJob[string]("letter")
	a, b, c := job.New("a"), job.New("b"), job.New("c")
	for _, runs := range [][]durable.NewRun{{a, a}, {a, b, c, a}, {c, b, a, b}, {b, a, c, c}} {
		require.ErrorContains(t, store.CheckRuns(runs), "has the id of run")
	}
	for _, runs := range [][]durable.NewRun{{a, b, c}, {c, b, a}, {b, a, c}} {
		require.NoError(t, store.CheckRuns(runs))
	}
}

func TestYearsAreThoseOfUTC(t *testing.T) {
	t.Parallel()
	job := durable.NewJob[string]("letter")
	west, east := time.FixedZone("west", -12*3600), time.FixedZone("east", 14*3600)
	for _, refused := range []time.Time{
		time.Date(9999, 12, 31, 23, 0, 0, 0, west), // 10000 in UTC, which JSON cannot tell
		time.Date(1970, 1, 1, 0, 0, 0, 0, east),    // 1969 in UTC
	} {
		for _, option := range []durable.Option{durable.At(refused), durable.ExpiresAt(refused)} {
			require.ErrorIs(t, store.CheckRuns([]durable.NewRun{job.New("", option)}), durable.ErrInvalid)
		}
	}
	for _, accepted := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, east), time.Date(1969, 12, 31, 23, 0, 0, 0, west)} {
		require.NoError(t, store.CheckRuns([]durable.NewRun{job.New("", durable.At(accepted), durable.ExpiresAt(accepted))}))
	}
}
