package durablecmd

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/backend"
	"github.com/durable-worker/durable-worker/durable"
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

func (l *losing) SetQueue(context.Context, string, durable.QueueAction, string) error {
	return l.answer()
}

func (l *losing) ChangeSchedule(context.Context, string, durable.ScheduleAction, string) error {
	return l.answer()
}

func (l *losing) SaveSchedule(context.Context, durable.Schedule, string) error { return l.answer() }

func (l *losing) Operate(_ context.Context, order durable.Order) ([]durable.Changed, error) {
	return []durable.Changed{{ID: order.Runs[0], Did: durable.Missing}}, l.answer()
}

func TestVerbsOutliveALostConnection(t *testing.T) {
	t.Parallel()
	use := func(l *losing) (*losing, repeating) { return l, repeating{l, time.Microsecond} }

	l, store := use(&losing{loses: 2})
	require.NoError(t, store.SetQueue(t.Context(), "q", durable.ResumeQueue, "ann"))
	require.Equal(t, 3, l.calls)

	_, store = use(&losing{loses: 1, err: durable.ErrNotFound})
	require.NoError(t, store.ChangeSchedule(t.Context(), "s", durable.DeleteSchedule, "ann"), "what is deleted is gone")
	_, store = use(&losing{err: durable.ErrNotFound})
	require.ErrorIs(t, store.ChangeSchedule(t.Context(), "s", durable.DeleteSchedule, "ann"), durable.ErrNotFound)

	_, store = use(&losing{loses: 1})
	changed, err := store.Operate(t.Context(), durable.Order{Action: durable.DeleteRuns, Runs: []durable.RunID{durable.NewRunID()}})
	require.NoError(t, err)
	require.Equal(t, durable.Unchanged, changed[0].Did)

	l, store = use(&losing{loses: 100})
	err = store.SetQueue(t.Context(), "q", durable.ResumeQueue, "ann")
	require.Equal(t, codeUnreachable, codeOf(err))
	require.Equal(t, 1+repetitions, l.calls)

	l, store = use(&losing{loses: 1})
	require.Error(t, store.SaveSchedule(t.Context(), durable.Schedule{}, "ann"), "it would meet its own change")
	require.Equal(t, 1, l.calls)

	l, store = use(&losing{err: errors.New("refused")})
	require.Error(t, store.SetQueue(t.Context(), "q", durable.ResumeQueue, "ann"))
	require.Equal(t, 1, l.calls)
}
