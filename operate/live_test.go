package operate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// counted counts the surveys that a store is asked for.
type counted struct {
	store.Store
	surveys atomic.Int64
}

func (c *counted) Survey(ctx context.Context) (store.Survey, error) {
	c.surveys.Add(1)
	return c.Store.Survey(ctx)
}

// TestHintsCostNothingWithoutAStream: a synctest bubble ends only when all that was
// started in it has ended.
func TestHintsCostNothingWithoutAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &counted{Store: memory.New(memory.Config{})}
		o := operate.New(db, operate.Config{})
		<-time.After(time.Minute)
		require.Zero(t, db.surveys.Load())

		first, err := o.Stream()
		require.NoError(t, err)
		second, err := o.Stream()
		require.NoError(t, err)
		hint, err := first.Next(t.Context())
		require.NoError(t, err)
		require.NotNil(t, hint.Survey)
		_, err = o.Enqueue(t.Context(), durable.NewJob[string]("mail").New("x"))
		require.NoError(t, err)
		_, err = o.As("ann").PauseUnusedQueue(t.Context(), "mail")
		require.NoError(t, err)
		<-time.After(10 * time.Second)
		hint, err = second.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"queues", "runs"}, hint.Changed, "hints that were not asked for are one")
		require.LessOrEqual(t, db.surveys.Load(), int64(7), "one for all streams, each two seconds")

		first.Close()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = second.Next(ended)
		require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded))
		second.Close()
		before := db.surveys.Load()
		<-time.After(time.Minute)
		require.Equal(t, before, db.surveys.Load())
	})
}

func TestAStreamWithoutSurveysAsksForNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &counted{Store: memory.New(memory.Config{})}
		o := operate.New(db, operate.Config{})
		plain, err := o.StreamWithoutSurveys()
		require.NoError(t, err)
		for range 3 { // one each two seconds, whether or not anything has changed
			hint, err := plain.Next(t.Context())
			require.NoError(t, err)
			require.Nil(t, hint.Survey)
		}
		_, err = o.Enqueue(t.Context(), durable.NewJob[string]("mail").New("x"))
		require.NoError(t, err)
		hint, err := plain.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"runs"}, hint.Changed)
		require.Zero(t, db.surveys.Load())

		full, err := o.Stream()
		require.NoError(t, err)
		hint, err = full.Next(t.Context())
		require.NoError(t, err)
		require.NotNil(t, hint.Survey)
		full.Close()
		full.Close()
		before := db.surveys.Load()
		<-time.After(time.Minute)
		require.Equal(t, before, db.surveys.Load(), "the last one that wanted surveys has gone")
		plain.Close()
	})
}

func TestAThousandStreams(t *testing.T) {
	t.Parallel()
	o := operate.New(memory.New(memory.Config{}), operate.Config{})
	var all []*operate.Stream
	for range 1000 {
		s, err := o.Stream()
		require.NoError(t, err)
		all = append(all, s)
	}
	_, err := o.Stream()
	require.ErrorIs(t, err, operate.ErrBusy)
	require.Equal(t, operate.Busy, o.CodeOf(err))
	for _, s := range all { // none of them has read
		s.Close()
	}
	again, err := o.Stream()
	require.NoError(t, err)
	_, err = again.Next(t.Context())
	require.NoError(t, err)
	again.Close()
}
