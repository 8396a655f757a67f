package operate

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// losing is a store that loses the answers of its first calls.
type losing struct {
	store.Store
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

func (l *losing) ChangeLimit(context.Context, store.LimitChange) error { return l.answer() }

func (l *losing) SaveSchedule(context.Context, store.Schedule, string) error { return l.answer() }

func (l *losing) Operate(_ context.Context, order store.RunCommand) ([]store.ChangedRun, error) {
	return []store.ChangedRun{{ID: order.Runs[0], Result: store.RunNotFound}}, l.answer()
}

func TestAnOperatorOutlivesALostConnection(t *testing.T) {
	t.Parallel()
	use := func(l *losing) (*losing, repeating) {
		return l, repeating{l, backend.Disconnected, nil, time.Microsecond}
	}

	l, db := use(&losing{loses: 2})
	require.NoError(t, db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann"))
	require.Equal(t, 3, l.calls)

	_, db = use(&losing{loses: 1, err: store.ErrNotFound})
	require.NoError(t, db.ChangeSchedule(t.Context(), "s", store.DeleteSchedule, "ann"), "what is deleted is gone")
	_, db = use(&losing{err: store.ErrNotFound})
	require.ErrorIs(t, db.ChangeSchedule(t.Context(), "s", store.DeleteSchedule, "ann"), store.ErrNotFound)

	_, db = use(&losing{loses: 1})
	changed, err := db.Operate(t.Context(), store.RunCommand{Action: store.DeleteRuns, Runs: []store.RunID{store.NewRunID()}})
	require.NoError(t, err)
	require.Equal(t, store.RunUnchanged, changed[0].Result)

	l, db = use(&losing{loses: 100})
	err = db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann")
	require.Equal(t, Unreachable, CodeOf(err, backend.Transient))
	require.Equal(t, 1+repetitions, l.calls)

	_, db = use(&losing{loses: 1, err: store.ErrNotFound})
	require.NoError(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.DeleteLimit}), "what is deleted is gone")
	_, db = use(&losing{loses: 1, err: store.ErrNotFound})
	require.ErrorIs(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.DrainLimit}), store.ErrNotFound)

	var pauses []time.Duration
	_, db = use(&losing{loses: 2})
	db.repeating = func(err error, pause time.Duration) {
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		pauses = append(pauses, pause)
	}
	require.NoError(t, db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann"))
	require.Equal(t, []time.Duration{time.Microsecond, 2 * time.Microsecond}, pauses)

	l, db = use(&losing{loses: 1})
	require.Error(t, db.SaveSchedule(t.Context(), store.Schedule{}, "ann"), "it would meet its own change")
	require.Equal(t, 1, l.calls)

	l, db = use(&losing{err: errors.New("refused")})
	require.Error(t, db.SetQueue(t.Context(), "q", store.ResumeQueue, "ann"))
	require.Equal(t, 1, l.calls)
}
