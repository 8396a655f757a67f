package durabletest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

type facts = []durabletest.Fact

// parcel is a handler with two steps, a sleep and a wait, which notes what it executes.
type parcel struct{ diary diary }

func (p *parcel) do(note string, value any, err error) func(context.Context) (any, error) {
	return func(context.Context) (any, error) { p.diary.note(note); return value, err }
}

func (p *parcel) handle(ctx context.Context, run *durable.Run[mailArgs]) error {
	charge, err := durable.Step(ctx, run, "charge", p.do("charge", "c0", nil))
	if err != nil {
		return err
	}
	if err := run.Sleep(ctx, "three days", 72*time.Hour); err != nil {
		return err
	}
	by, err := durable.Receive[string](ctx, run, "approved", 7*24*time.Hour)
	if errors.Is(err, durable.ErrNoInput) {
		by, err = "the clock", nil
	}
	if err != nil {
		return err
	}
	if _, err := durable.Step(ctx, run, "ship", p.do("ship", nil, nil)); err != nil {
		return err
	}
	return run.SetResult([]any{charge, by})
}

func namesOf(steps []store.StepRecord) (names []string) {
	for i := range steps {
		names = append(names, steps[i].Name+" "+steps[i].Kind.String())
	}
	return names
}

func TestPerformAfter(t *testing.T) {
	t.Parallel()
	ada := mailArgs{To: "ada"}
	for sentence, c := range map[string]struct {
		past   facts
		notes  []string // of the steps whose functions were called
		steps  []string
		waits  []string
		result string
	}{
		"without a past it begins": {
			notes: []string{"charge"}, steps: []string{"charge done", "three days sleep"}, waits: []string{"three days sleep"},
		},
		"a stored step is not executed": {
			past:  facts{durabletest.Stored("charge", "c1")},
			steps: []string{"three days sleep"}, waits: []string{"three days sleep"},
		},
		"a sleep that is over is passed": {
			past:  facts{durabletest.Stored("charge", "c1"), durabletest.Slept("three days")},
			steps: []string{"approved input"}, waits: []string{"approved input"},
		},
		"an input is received": {
			past:  facts{durabletest.Stored("charge", "c1"), durabletest.Slept("three days"), durabletest.Sent("approved", "eva")},
			notes: []string{"ship"}, steps: []string{"ship done"}, result: `["c1","eva"]`,
		},
		"an input that has not come is given up": {
			past:  facts{durabletest.NotSent("approved"), durabletest.Slept("three days"), durabletest.Stored("charge", "c1")},
			notes: []string{"ship"}, steps: []string{"ship done"}, result: `["c1","the clock"]`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			p := &parcel{}
			got := durabletest.PerformAfter(t, memory.New(memory.Config{}), c.past, mailJob(), p.handle, ada)
			require.Equal(t, c.notes, p.diary.read())
			require.Equal(t, c.steps, namesOf(got.Steps))
			require.Equal(t, c.waits, namesOf(got.Waits))
			if c.waits != nil {
				require.Equal(t, store.Snoozed, got.Outcome.Kind)
				return
			}
			require.NoError(t, got.Err)
			require.JSONEq(t, c.result, string(got.Outcome.Result))
			require.Equal(t, 1, got.Record.Attempt)
			require.Len(t, got.Record.Attempts, 1)
		})
	}
	for engine, open := range engines() {
		t.Run("a past is stored on "+engine+", and a wait begins there", func(t *testing.T) {
			t.Parallel()
			db, p := open(t), &parcel{}
			past := facts{durabletest.Stored("charge", "c1"), durabletest.Slept("three days"), durabletest.Failed("hotel", errBusy)}
			got := durabletest.PerformAfter(t, db, past, mailJob(), p.handle, ada)
			require.Equal(t, []string{"approved input"}, namesOf(got.Waits))
			durabletest.RequireWaiting(t, db, got.Record.ID, "approved")
			recorded, err := store.StepsOf(t.Context(), db, got.Record.ID)
			require.NoError(t, err)
			require.Equal(t, []string{"charge done", "three days sleep", "hotel failed", "approved input"}, namesOf(recorded.Steps))
			got = durabletest.PerformAfter(t, db, append(past, durabletest.NotSent("approved")), mailJob(), p.handle, ada)
			require.JSONEq(t, `["c1","the clock"]`, string(got.Outcome.Result))
			got = durabletest.PerformAfter(t, db, append(past, durabletest.Sent("approved", "eva")), mailJob(), p.handle, ada)
			require.JSONEq(t, `["c1","eva"]`, string(got.Outcome.Result))
			require.Equal(t, []string{"ship", "ship"}, p.diary.read())
		})
	}
	t.Run("a recorded failure is compensated", func(t *testing.T) {
		t.Parallel()
		undone := &parcel{}
		got := durabletest.PerformAfter(t, memory.New(memory.Config{}), facts{durabletest.Failed("hotel", errBusy)}, mailJob(),
			func(ctx context.Context, run *durable.Run[mailArgs]) error {
				_, err := durable.Step(ctx, run, "hotel", undone.do("book", nil, nil))
				if failed := err; durable.Final(failed) {
					if _, err := durable.Step(ctx, run, "undo", undone.do("undo", nil, nil)); err != nil {
						return err
					}
					return durable.Permanent(failed)
				}
				return err
			}, ada)
		require.EqualError(t, got.Err, `step "hotel": busy`)
		require.Equal(t, store.Death, got.Outcome.Kind)
		require.Equal(t, []string{"undo"}, undone.diary.read())
	})
	t.Run("a failed try is among the steps", func(t *testing.T) {
		t.Parallel()
		got := durabletest.Perform(t, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
			_, err := durable.Step(ctx, run, "charge", (&parcel{}).do("charge", nil, errBusy), durable.StepAttempts(3))
			return err
		}, ada)
		require.Equal(t, []string{"charge tried"}, namesOf(got.Steps))
		require.Equal(t, "busy", got.Steps[0].Error)
		require.Empty(t, got.Waits)
		require.Equal(t, store.Snoozed, got.Outcome.Kind)
	})
	t.Run("branches wait for several things", func(t *testing.T) {
		t.Parallel()
		got := durabletest.Perform(t, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
			return durable.Parallel(ctx, run,
				func(ctx context.Context) error { return run.Sleep(ctx, "a day", 24*time.Hour) },
				func(ctx context.Context) error { _, err := durable.Receive[int](ctx, run, "n", 0); return err })
		}, ada)
		require.ElementsMatch(t, []string{"a day sleep", "n input"}, namesOf(got.Waits))
	})
	t.Run("a codec encodes the past, and a rate is charged once", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			job := durable.NewJob[mailArgs]("sealed", durable.WithCodec(xored{}),
				durable.Limited(durable.NewLimit("one-a-day", durable.SlidingWindow(1, 24*time.Hour, 1))))
			began := time.Now()
			got := durabletest.PerformAfter(t, kit.Store,
				facts{durabletest.Stored("charge", "c1"), durabletest.Slept("three days"), durabletest.Sent("approved", "eva")}, job, (&parcel{}).handle, ada)
			require.NoError(t, got.Err)
			require.Less(t, time.Since(began), time.Minute)
			recorded, err := store.StepsOf(t.Context(), kit.Store, got.Record.ID)
			require.NoError(t, err)
			require.NotContains(t, string(recorded.Steps[0].Value), "c1")
		})
	})
	for sentence, c := range map[string]struct {
		past facts
		says string
	}{
		"a name that is given twice fails the test":   {facts{durabletest.Stored("a", 1), durabletest.Stored("a", 2)}, `fact "a": `},
		"so does an input that is sent and is not":    {facts{durabletest.Sent("a", 1), durabletest.NotSent("a")}, `fact "a": sent, and not sent`},
		"so does a value that is no JSON":             {facts{durabletest.Stored("a", make(chan int))}, `step "a"`},
		"so does an input of a value that is no JSON": {facts{durabletest.Sent("a", make(chan int))}, `fact "a"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			said := fails(t, func(tb testing.TB) {
				durabletest.PerformAfter(tb, memory.New(memory.Config{}), c.past, mailJob(), (&parcel{}).handle, ada)
			})
			require.Contains(t, said, c.says)
		})
	}
}

// xored is a codec that makes text unreadable.
type xored struct{}

func (xored) Encode(_ durable.CodecInfo, plain []byte) ([]byte, error) {
	return append(append([]byte(`"`), bytes.Map(func(r rune) rune { return r ^ 0x100 }, bytes.ReplaceAll(plain, []byte(`"`), []byte(`'`)))...), '"'), nil
}

func (xored) Decode(_ durable.CodecInfo, stored []byte) ([]byte, error) {
	return bytes.ReplaceAll(bytes.Map(func(r rune) rune { return r ^ 0x100 }, bytes.Trim(stored, `"`)), []byte(`'`), []byte(`"`)), nil
}
