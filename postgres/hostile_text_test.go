package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

// One of five hundred outcomes that the database refuses, in whichever of its
// texts, holds up none of the others, and is recorded.
func TestOneOfFiveHundredOutcomesIsRefused(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]durable.Outcome{
		"log":        {Kind: durable.Success, Log: "a\x00b"},
		"log of MiB": {Kind: durable.Success, Log: strings.Repeat("\xff", 10<<20)},
		"error":      {Kind: durable.Failure, Error: "\xff\x00" + strings.Repeat("e", 10<<20)},
		"stack":      {Kind: durable.Death, Error: "e", Stack: "\x00"},
		"result":     {Kind: durable.Success, Result: []byte(`"\u0000 \ud800"`)},
		"no json":    {Kind: durable.Success, Result: []byte("{"), Log: "l"},
		"a reason":   {Kind: durable.Cancellation, Error: "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := openStore(t, "")
			runs := newRuns(500)
			_, err := store.Enqueue(t.Context(), runs...)
			require.NoError(t, err)
			r, err := request(t.Context(), store, worker("w"), 500, time.Minute)
			require.NoError(t, err)
			claimed, err := store.Claim(t.Context(), r)
			require.NoError(t, err)
			require.Len(t, claimed, 500)
			one := settlement(r, claimed, durable.Outcome{Kind: durable.Success, Log: "a line"})
			one.Runs[250].Outcome = outcome
			verdicts, err := store.Settle(t.Context(), []durable.Settlement{one})
			require.NoError(t, err)
			for i, verdict := range verdicts {
				require.Equal(t, durable.Accepted, verdict, "%d", i)
			}
			record, err := store.Run(t.Context(), claimed[250].ID)
			require.NoError(t, err)
			require.Equal(t, outcome.Kind.State(), record.State)
			counts, err := store.Counts(t.Context())
			require.NoError(t, err)
			require.Zero(t, counts[durable.Running].N)
			requireConsistent(t, store)
		})
	}
}

// Text that the database cannot keep is refused as the caller's fault, with
// nothing stored, wherever it is given.
func TestHostileTextIsInvalidEverywhere(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	_, holder := held(t, store)
	for _, bad := range []string{"a\x00b", "\xff", "\xed\xa0\x80"} {
		for name, call := range map[string]func() error{
			"key":   func() error { _, err := store.Enqueue(t.Context(), newRun(durable.Unique(bad))); return err },
			"tag":   func() error { _, err := store.Enqueue(t.Context(), newRun(durable.Tags(bad))); return err },
			"trace": func() error { run := newRun(); run.Trace = bad; _, err := store.Enqueue(t.Context(), run); return err },
			"of child": func() error {
				_, err := store.EnqueueUnder(t.Context(), holder, newRun(durable.Unique(bad)))
				return err
			},
			"reason": func() error {
				_, err := store.Operate(t.Context(), durable.Order{Action: durable.CancelRuns, Runs: []durable.RunID{holder.Run}, Reason: bad, By: "b"})
				return err
			},
			"actor": func() error {
				_, err := store.Operate(t.Context(), durable.Order{Action: durable.CancelRuns, Runs: []durable.RunID{holder.Run}, By: bad})
				return err
			},
		} {
			require.ErrorIs(t, call(), durable.ErrInvalid, "%s %q", name, bad)
		}
	}
	record, err := store.Run(t.Context(), holder.Run)
	require.NoError(t, err)
	require.Equal(t, durable.Running, record.State)
	page, err := store.Runs(t.Context(), durable.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
}
