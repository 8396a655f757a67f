package durablecmd

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// losing is a store that loses the answers of its first calls.
type losing struct {
	backend.Store
	loses, calls int
	err          error // of later calls
}

func (l *losing) answer() error {
	if l.calls++; l.calls <= l.loses {
		return io.ErrUnexpectedEOF
	}
	return l.err
}

func (l *losing) SetQueue(context.Context, string, store.QueueAction, string) error {
	return l.answer()
}

func (l *losing) ChangeSchedule(context.Context, string, store.ScheduleAction, string) error {
	return l.answer()
}

func (l *losing) SaveSchedule(context.Context, store.Schedule, string) error { return l.answer() }

func (l *losing) Operate(_ context.Context, order store.RunCommand) ([]store.ChangedRun, error) {
	return []store.ChangedRun{{ID: order.Runs[0], Result: store.RunNotFound}}, l.answer()
}

func TestVerbsOutliveALostConnection(t *testing.T) {
	t.Parallel()
	use := func(l *losing) (*losing, repeating) { return l, repeating{l, time.Microsecond} }

	l, db := use(&losing{loses: 2})
	require.NoError(t, db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann"))
	require.Equal(t, 3, l.calls)

	_, db = use(&losing{loses: 1, err: durable.ErrNotFound})
	require.NoError(t, db.ChangeSchedule(t.Context(), "s", store.DeleteSchedule, "ann"), "what is deleted is gone")
	_, db = use(&losing{err: durable.ErrNotFound})
	require.ErrorIs(t, db.ChangeSchedule(t.Context(), "s", store.DeleteSchedule, "ann"), durable.ErrNotFound)

	_, db = use(&losing{loses: 1})
	changed, err := db.Operate(t.Context(), store.RunCommand{Action: store.DeleteRuns, Runs: []durable.RunID{durable.NewRunID()}})
	require.NoError(t, err)
	require.Equal(t, store.RunUnchanged, changed[0].Result)

	l, db = use(&losing{loses: 100})
	err = db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann")
	require.Equal(t, codeUnreachable, codeOf(err))
	require.Equal(t, 1+repetitions, l.calls)

	l, db = use(&losing{loses: 1})
	require.Error(t, db.SaveSchedule(t.Context(), store.Schedule{}, "ann"), "it would meet its own change")
	require.Equal(t, 1, l.calls)

	l, db = use(&losing{err: errors.New("refused")})
	require.Error(t, db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann"))
	require.Equal(t, 1, l.calls)
}
