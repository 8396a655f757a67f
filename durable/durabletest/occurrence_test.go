package durabletest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

// ledger bills customers by the month that the run is for.
type ledger struct {
	billed []string
	fail   int // attempts that fail after the bill is written
}

func (l *ledger) bill(_ context.Context, run *durable.Run[mailArgs]) error {
	month, ok := run.Occurrence()
	if !ok {
		return durable.Permanent(errors.New("requested by hand, so it is for no month"))
	}
	l.billed = append(l.billed, month.Format("2006-01"))
	if run.Attempt <= l.fail {
		return errBusy
	}
	return nil
}

func (l *ledger) monthly(rule store.Rule, options ...durable.Option) func(*durable.Worker) {
	return func(w *durable.Worker) {
		handles(l.bill, durable.MaxAttempts(5), durable.Retry(durable.Fixed(24*time.Hour)))(w)
		durable.AddSchedule(w, "monthly", mailJob(), mailArgs{To: "ada"}, rule, options...)
	}
}

func TestOccurrence(t *testing.T) {
	t.Parallel()
	inBerlin := durable.Cron("0 0 1 * *", "Europe/Berlin") // the evening before, in UTC
	t.Run("every attempt has the month of the occurrence", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			l := &ledger{fail: 2}
			kit.Worker(l.monthly(durable.Cron("30 23 L * *", "Europe/Berlin")))
			kit.AdvanceTo(time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC))
			require.Equal(t, durabletest.Tally{Succeeded: 1, Failed: 1}, kit.RunAll())
			require.Equal(t, []string{"2000-01", "2000-01", "2000-01"}, l.billed)
		})
	})
	t.Run("after an outage each run has its own month in the schedule's zone, at every attempt", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			l := &ledger{fail: 1}
			code := l.monthly(inBerlin, durable.CatchUp(durable.CatchUpAll, 0, 0), durable.Overlap(durable.OverlapAllow), durable.EndAt(time.Date(2000, 3, 2, 0, 0, 0, 0, time.UTC)))
			first := kit.Worker(code)
			kit.Advance(0)
			first.Kill()
			kit.AdvanceTo(time.Date(2000, 3, 10, 0, 0, 0, 0, time.UTC))
			kit.Worker(code)
			require.Equal(t, durabletest.Tally{Succeeded: 2, Failed: 2}, kit.RunAll())
			require.Equal(t, []string{"2000-02", "2000-02", "2000-03", "2000-03"}, slices.Sorted(slices.Values(l.billed)))
		})
	})
	t.Run("a delay that spreads load does not move it into the next month", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			l := &ledger{}
			lastMinute := durable.Cron("59 23 L * *", "Europe/Berlin")
			kit.Worker(l.monthly(lastMinute, durable.SpreadStart(24*time.Hour), durable.Jitter(24*time.Hour)))
			kit.AdvanceTo(time.Date(2000, 2, 10, 0, 0, 0, 0, time.UTC))
			for _, run := range durabletest.Enqueued(t, kit.Store, mailJob()) {
				require.NotEqual(t, run.Record.Occurrence.Month(), run.Record.DueAt.Month(), "the test delays nothing")
			}
			require.Equal(t, []string{"1999-12", "2000-01"}, l.billed)
		})
	})
	t.Run("a run that an operator requests is for none", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			l := &ledger{}
			kit.Worker(l.monthly(inBerlin))
			kit.Advance(0)
			require.NoError(t, kit.Store.RunSchedule(t.Context(), "monthly", durable.NewRunID(), durable.OverlapSkip, "ann"))
			require.Equal(t, durabletest.Tally{Dead: 1}, kit.RunDue())
			require.Empty(t, l.billed)
		})
	})
	t.Run("a handler is executed for one", func(t *testing.T) {
		t.Parallel()
		l := &ledger{}
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		march := time.Date(2026, 3, 1, 0, 0, 0, 0, berlin)
		got := durabletest.PerformOccurrence(t, march, mailJob(), l.bill, mailArgs{})
		require.NoError(t, got.Err)
		require.Equal(t, []string{"2026-03"}, l.billed)
		require.True(t, got.Record.Occurrence.Equal(march))
		require.Error(t, durabletest.Perform(t, mailJob(), l.bill, mailArgs{}).Err)
		require.Nil(t, durabletest.Perform(t, mailJob(), l.bill, mailArgs{}).Record.Occurrence)
	})
}
