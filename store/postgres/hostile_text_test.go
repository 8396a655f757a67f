package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// One of five hundred outcomes that the database refuses, in whichever of its
// texts, holds up none of the others, and is recorded.
func TestOneOfFiveHundredOutcomesIsRefused(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]store.Outcome{
		"log":          {Kind: store.Success, Log: "a\x00b"},
		"log of a MiB": {Kind: store.Success, Log: strings.Repeat("\xff", 1<<20)},
		"error":        {Kind: store.Failure, Error: "\xff\x00" + strings.Repeat("e", 1<<20)},
		"stack":        {Kind: store.Death, Error: "e", Stack: "\x00"},
		"result":       {Kind: store.Success, Result: []byte(`"\u0000 \ud800"`)},
		"no json":      {Kind: store.Success, Result: []byte("{"), Log: "l"},
		"a reason":     {Kind: store.Cancellation, Error: "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			runs := newRuns(500)
			_, err := db.Enqueue(t.Context(), runs...)
			require.NoError(t, err)
			r, err := request(t.Context(), db, worker("w"), 500, time.Minute)
			require.NoError(t, err)
			claimed, err := db.Claim(t.Context(), r)
			require.NoError(t, err)
			require.Len(t, claimed, 500)
			one := settlement(r, claimed, store.Outcome{Kind: store.Success, Log: "a line"})
			one.Runs[250].Outcome = outcome
			verdicts, err := db.Settle(t.Context(), []store.Settlement{one})
			require.NoError(t, err)
			for i, verdict := range verdicts {
				require.Equal(t, store.Applied, verdict, "%d", i)
			}
			record, err := db.Run(t.Context(), claimed[250].ID)
			require.NoError(t, err)
			require.Equal(t, outcome.Kind.State(), record.State)
			counts, err := db.Counts(t.Context())
			require.NoError(t, err)
			require.Zero(t, counts[store.Running].N)
			requireConsistent(t, db)
		})
	}
}

// Text that the database cannot keep is refused as the caller's fault, with
// nothing stored, wherever it is given.
func TestHostileTextIsInvalidEverywhere(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, holder := held(t, db)
	for _, bad := range []string{"a\x00b", "\xff", "\xed\xa0\x80"} {
		for name, call := range map[string]func() error{
			"key":   func() error { _, err := db.Enqueue(t.Context(), newRun(durable.Unique(bad))); return err },
			"tag":   func() error { _, err := db.Enqueue(t.Context(), newRun(durable.Tags(bad))); return err },
			"trace": func() error { run := newRun(); run.Trace = bad; _, err := db.Enqueue(t.Context(), run); return err },
			"of child": func() error {
				_, err := db.EnqueueUnder(t.Context(), holder, newRun(durable.Unique(bad)))
				return err
			},
			"reason": func() error {
				_, err := db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{holder.Run}, Reason: bad, By: "b"})
				return err
			},
			"actor": func() error {
				_, err := db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{holder.Run}, By: bad})
				return err
			},
		} {
			require.ErrorIs(t, call(), store.ErrInvalid, "%s %q", name, bad)
		}
	}
	record, err := db.Run(t.Context(), holder.Run)
	require.NoError(t, err)
	require.Equal(t, store.Running, record.State)
	page, err := db.Runs(t.Context(), store.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
}
